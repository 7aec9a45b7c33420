// The first difference of two runs, from records made by hand.
#include "report/compare_runs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

class CompareRuns : public testing::Test {
 protected:
  std::filesystem::path run(const std::string& name, const std::vector<Json>& lines) const {
    const std::filesystem::path dir = folder_ / name;
    std::filesystem::create_directories(dir);
    std::ofstream out(dir / "metrics.jsonl");
    for (const Json& line : lines) out << line.dump() << "\n";
    return dir;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static Json digest(int step, const std::string& weights, const std::string& optimizer = "o") {
    return {{"event", "digest"}, {"time_s", 1.5}, {"step", step}, {"weights", weights}, {"optimizer", optimizer}};
  }
  static Json layers() {
    return {{"forward", {{"first", {"1", "2"}}, {"last", {"3", "4"}}}},
            {"backward", {{"first.w", {"5", "6"}}, {"last.w", {"7", "8"}}}},
            {"sum", {{"first.w", "9"}, {"last.w", "a"}}},
            {"update", {{"first.w", "b"}, {"last.w", "c"}}},
            {"buffers", {{"first.mean", "d"}}}};
  }
  // The second run differs in step 2, and there in `change`.
  RunDifference of_layers(const std::function<void(Json&)>& change) const {
    Json a = digest(2, "x"), b = digest(2, "y");
    a["layers"] = b["layers"] = layers();
    change(b["layers"]);
    return compare_runs(run("a", {digest(1, "w"), a}), run("b", {digest(1, "w"), b})).first.value();
  }

 private:
  const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "compare_runs";
};

TEST_F(CompareRuns, EqualRunsHaveNoDifference) {
  const Json step{{"event", "step"}, {"time_s", 1}, {"step", 1}, {"loss", 2.5}, {"load_ms", 1}};
  const RunComparison found = compare_runs(run("a", {digest(1, "w"), step, digest(2, "x"), digest(3, "y")}),
                                           run("b", {digest(1, "w"), digest(2, "x")}));
  EXPECT_FALSE(found.first);
  EXPECT_EQ(found.steps, 2);
  EXPECT_EQ(found.last_step, 2);
  EXPECT_EQ(to_json(found).at("first_difference"), nullptr);
  EXPECT_EQ(describe(found),
            "equal: 2 steps with digests, the last one step 2; 1 digest of steps that only one of the runs has");
}

TEST_F(CompareRuns, TheFirstStepThatDiffersIsNamed) {
  const RunComparison found = compare_runs(run("a", {digest(1, "w"), digest(5, "x"), digest(6, "y")}),
                                           run("b", {digest(1, "w"), digest(5, "z"), digest(6, "y")}));
  EXPECT_EQ(found.first->step, 5);
  EXPECT_EQ(found.first->equal_until, 1);
  EXPECT_EQ(found.first->what, "weights");
  EXPECT_EQ(found.last_step, 6);
  const RunComparison of_optimizer = compare_runs(run("a", {digest(1, "w", "o")}), run("b", {digest(1, "w", "p")}));
  EXPECT_EQ(of_optimizer.first->what, "optimizer");
}

TEST_F(CompareRuns, AStepThatWasTrainedAgainAfterAResumeCountsAsItIsNow) {
  const RunComparison found = compare_runs(run("a", {digest(1, "w"), digest(2, "old"), digest(2, "x")}),
                                           run("b", {digest(1, "w"), digest(2, "x")}));
  EXPECT_FALSE(found.first);
}

TEST_F(CompareRuns, LayersSayWhatAndWhere) {
  const auto forward = of_layers([](Json& own) { own["forward"]["last"][1] = "!", own["update"]["first.w"] = "!"; });
  EXPECT_EQ(forward.what, "forward");
  EXPECT_EQ(forward.name, "last");
  EXPECT_EQ(forward.micro_batch, 1);
  EXPECT_EQ(forward.step, 2);
  const auto backward = of_layers([](Json& own) {
    own["backward"]["first.w"][0] = "!", own["backward"]["last.w"][1] = "!", own["sum"]["first.w"] = "!";
  });
  EXPECT_EQ(backward.what, "backward");
  EXPECT_EQ(backward.name, "last.w") << "its gradient comes first";
  EXPECT_EQ(backward.micro_batch, 1);
  const auto sum = of_layers([](Json& own) { own["sum"]["last.w"] = "!", own["update"]["last.w"] = "!"; });
  EXPECT_EQ(sum.what, "sum");
  EXPECT_EQ(sum.name, "last.w");
  EXPECT_FALSE(sum.micro_batch);
  EXPECT_EQ(of_layers([](Json& own) { own["update"]["last.w"] = "!"; }).what, "update");
  const auto buffers = of_layers([](Json& own) { own["buffers"]["first.mean"] = "!"; });
  EXPECT_EQ(buffers.what, "buffers");
  EXPECT_EQ(buffers.name, "first.mean");
}

TEST_F(CompareRuns, OtherLayersAndDamagedDigestsAreSaid) {
  const auto other = of_layers([](Json& own) { own["forward"]["more"] = {"1", "2"}; });
  EXPECT_EQ(other.what, "layers");
  EXPECT_EQ(other.name, "more");
  Json number = digest(1, "w");
  number["weights"] = 7;
  EXPECT_THROW(compare_runs(run("a", {number}), run("b", {digest(1, "w")})), DataError);
  Json text = digest(1, "w");
  text["step"] = "1";
  EXPECT_THROW(compare_runs(run("a", {digest(1, "w")}), run("b", {text})), DataError);
}

TEST_F(CompareRuns, ADifferenceIsSaidInOneSentence) {
  const auto text_of = [&](int step, bool with_layers) {
    Json a = digest(step, "x"), b = digest(step, "y");
    if (with_layers) a["layers"] = b["layers"] = layers(), b["layers"]["forward"]["last"][1] = "!";
    return describe(compare_runs(run("a", {digest(1, "w"), a}), run("b", {digest(1, "w"), b})));
  };
  EXPECT_EQ(text_of(2, true), "first difference: forward of last, micro-batch 1, in step 2");
  EXPECT_EQ(text_of(2, false),
            "first difference: weights, in step 2; with log.digest_layers = true both runs name the layer");
  EXPECT_EQ(
      text_of(9, true),
      "first difference: forward of last, micro-batch 1, in step 9 or after step 1, the last with equal digests; with "
      "log.digest_every = 1 both runs name the step");
}

TEST_F(CompareRuns, RunsWithoutACommonStepAndOtherFoldersAreRefused) {
  EXPECT_THROW(compare_runs(run("a", {digest(1, "w")}), run("b", {digest(2, "w")})), DataError);
  EXPECT_THROW(compare_runs(run("a", {digest(1, "w")}), "/nowhere"), ConfigError);
}

}  // namespace
}  // namespace sluice::report
