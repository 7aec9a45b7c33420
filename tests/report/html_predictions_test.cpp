// Predicted beside measured: only of what the prediction was made for, each change with its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/layer_profile.h"
#include "report/html/history.h"
#include "report/html/predictions.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class PredictionsTest : public testing::Test {
 protected:
  PredictionsTest() {
    run_.log.dir = folder_.path();
    run_.log.plan = {{"model", "mlp"}, {"stages", 2}, {"virtual", 1}, {"global_batch", 64}};
    run_.log.means = {{"step_ms", 5.0}, {"load_ms", 1.0}};
    profile_.fingerprint = {.cpu = "one",
                            .cores = 2,
                            .threads_per_device = 1,
                            .memory_bytes = 1ULL << 30,
                            .device = "cpu:0",
                            .precision = "fp32",
                            .optimizer = "momentum",
                            .batch_norm = "micro",
                            .model = {.name = "mlp", .classes = 10, .channels = 1, .image_size = 8}};
    profile_.micro_batch = 16;
    profiler::MeasuredLayer& layer = profile_.layers.emplace_back();
    layer.name = "fc";
    layer.cost = {.forward = {1e-5, 1e-6, 0.01},
                  .input_gradient = {1e-5, 1e-6, 0.01},
                  .weight_gradient = {0, 1e-6, 0},
                  .input_bytes = 2048,
                  .output_bytes = 4096,
                  .parameter_bytes = 1000,
                  .gradient_bytes = 1000};
    layer.times = {{16, 1e-3, 2e-3, 3e-3}};
    profile_.step = profiler::StepSummary{.steps = 3,
                                          .median_s = 0.004,
                                          .median_without_load_s = 0.0035,
                                          .fastest_s = 0.004,
                                          .samples_per_s = 16000,
                                          .predicted_s = 0.003,
                                          .predicted_allreduce_s = 0,
                                          .predicted_update_s = 0};
    profile_.stage_memory = {{.stage = 0, .device = "cpu:0", .live_bytes = 1},
                             {.stage = 1, .device = "cpu:1", .live_bytes = 1}};
  }

  Json rows() {
    test::spill(folder_ / "profile.json", profiler::to_json_text(profile_));
    return predictions_of(run_, Json::array());
  }

  test::TempDir folder_;
  RunReport run_;
  profiler::LayerProfile profile_;
};

TEST_F(PredictionsTest, StepsOfThisRunWithoutLoad) {
  const Json of_both = rows();
  ASSERT_EQ(of_both.size(), 2U) << of_both;
  EXPECT_NEAR(of_both[0]["measured_ms"], 3.5, 1e-9);
  EXPECT_NEAR(of_both[1]["predicted_ms"], 3, 1e-9);
  EXPECT_EQ(of_both[1]["measured_ms"], 4.0) << "5 ms, of it 1 ms load";
  run_.log.summary["step_ms_of_last_plan"] = 4.5;
  EXPECT_EQ(rows()[1]["measured_ms"], 3.5);
}

TEST_F(PredictionsTest, AProfileOfOtherStepsIsNotCompared) {
  const auto why = [&] {
    const Json of_both = rows();
    EXPECT_EQ(of_both.size(), 2U);
    EXPECT_TRUE(of_both[1]["predicted_ms"].is_null());
    return of_both[1]["what"].get<std::string>();
  };
  run_.log.plan["global_batch"] = 32;
  EXPECT_THAT(why(), HasSubstr("was measured with 64 samples a step, not 32"));
  run_.log.plan["global_batch"] = 64;
  run_.log.plan["model"] = "vit";
  EXPECT_THAT(why(), HasSubstr("was measured with the model mlp"));
  run_.log.plan["model"] = "mlp";
  run_.log.plan["stages"] = 1;
  EXPECT_THAT(why(), HasSubstr("was measured with 2 stages"));
  run_.log.plan["stages"] = 2;
  run_.config.emplace();
  profile_.fingerprint.precision = "fp64";
  EXPECT_THAT(why(), HasSubstr("was measured with fp64"));
}

// One checkpoint after another does not use up the place of the changes.
TEST_F(PredictionsTest, EachChangeHasItsOwnHoweverMuchElseHappens) {
  History history;
  const auto change = [&](int step, double before, double predicted) {
    history.add({{"event", "transition"},
                 {"step", step},
                 {"predicted_before_ms", before},
                 {"measured_before_ms", before},
                 {"predicted_ms", predicted}},
                "transition");
  };
  change(1, 90, 60);
  for (int step = 2; step < 900; step += 2) history.add({{"event", "checkpoint"}, {"step", step}}, "checkpoint");
  change(900, 60, 20);
  run_.log.summary["step_ms_of_last_plan"] = 20.0;
  const Json all = predictions_of(run_, history.transitions());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1]["what"], "the plan until step 900");
  EXPECT_EQ(all[2]["predicted_ms"], all[2]["measured_ms"]);
  EXPECT_EQ(history.json()["happenings"].size(), 300U);
}

}  // namespace
}  // namespace sluice::report
