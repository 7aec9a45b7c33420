// The page of `report --html`: thinning keeps peaks, text cannot leave its place, heads of step lines are those of
// whole ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/concat.h"
#include "report/html/history.h"
#include "report/html/page.h"
#include "report/html/process_times.h"
#include "report/html/thinned.h"
#include "report/record_lines.h"
#include "report/record_sums.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

Thinned thinned_of(const std::vector<Point>& points, std::size_t buckets) {
  Thinned thinned(buckets);
  for (const Point& point : points) thinned.add(point);
  return thinned;
}

std::vector<Point> random_walk(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> step;
  std::vector<Point> points;
  double value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    value += step(random);
    points.push_back({.step = static_cast<double>(i + 1), .time_s = 0.5 * static_cast<double>(i), .value = value});
  }
  return points;
}

// What a bucket of `width` values has to keep, by looking at all of them.
std::vector<Point> brute_force(const std::vector<Point>& points, std::size_t width) {
  std::vector<Point> kept;
  for (std::size_t begin = 0; begin < points.size(); begin += width) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(points.size(), begin + width));
    const auto less = [](const Point& one, const Point& other) { return one.value < other.value; };
    std::vector<std::ptrdiff_t> slots{0, std::min_element(first, last, less) - first,
                                      std::max_element(first, last, less) - first, last - first - 1};
    std::ranges::sort(slots);
    slots.erase(std::ranges::unique(slots).begin(), slots.end());
    for (const std::ptrdiff_t slot : slots) kept.push_back(first[slot]);
  }
  return kept;
}

TEST(ThinnedTest, KeepsFirstLeastGreatestAndLastOfEachBucket) {
  for (const std::size_t count : {1, 2, 7, 8, 9, 63, 64, 65, 1000, 4097}) {
    for (const std::size_t buckets : {2, 8, 64}) {
      const auto points = random_walk(count, static_cast<unsigned>(count * 100 + buckets));
      std::size_t width = 1;
      while ((count + width - 1) / width > buckets) width *= 2;
      EXPECT_EQ(thinned_of(points, buckets).points(), brute_force(points, width)) << count << " in " << buckets;
    }
  }
}

TEST(ThinnedTest, OnePeakAmongAMillionStays) {
  Thinned thinned;
  for (int i = 1; i <= 1'000'000; ++i)
    thinned.add({.step = double(i), .time_s = double(i), .value = i == 777'777 ? 9.0 : 1.0});
  const auto points = thinned.points();
  EXPECT_LE(points.size(), 2000U);
  EXPECT_EQ(std::ranges::count_if(points, [](const Point& p) { return p.step == 777'777 && p.value == 9; }), 1);
  EXPECT_EQ(points.front().step, 1);
  EXPECT_EQ(points.back().step, 1'000'000);
}

TEST(ThinnedTest, WhatIsNotFiniteIsCounted) {
  Thinned thinned;
  thinned.add({.step = 1, .time_s = 1, .value = std::nan("")});
  thinned.add({.step = 2, .time_s = 2, .value = std::numeric_limits<double>::infinity()});
  EXPECT_TRUE(thinned.empty());
  EXPECT_EQ(thinned.json()["not_finite"], 2);
}

TEST(BucketMeansTest, SumsStay) {
  BucketMeans means(4);
  for (int i = 0; i < 64; ++i) means.add(i, i, {{"forward", i}, {i % 2 == 0 ? "even" : "odd", 2.0}});
  const Json table = means.json();
  EXPECT_EQ(table["forward"], Json({7.5, 23.5, 39.5, 55.5}));
  EXPECT_EQ(table["even"], Json({1.0, 1.0, 1.0, 1.0}));
}

TEST(PageTest, NothingOfARunLeavesItsPlace) {
  const std::string hostile = "</script><script>alert(1)</script><!-- & \xe2\x80\xa8 \xe2\x80\xa9 \xff \" ' {{DATA}}";
  const std::string text = script_json({{"name", hostile}});
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
  EXPECT_THAT(text, Not(HasSubstr("\xe2\x80\xa8")));
  const std::string name = Json::parse(text)["name"];
  EXPECT_TRUE(name.starts_with("</script><script>alert(1)</script><!-- & \xe2\x80\xa8 \xe2\x80\xa9 \xef\xbf\xbd \""));
  EXPECT_EQ(html_text("<a b='c'>&\"\xff"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\xef\xbf\xbd");

  const std::string page_text = page({{"name", hostile}}, {.title = hostile, .refresh_s = 0});
  EXPECT_THAT(page_text, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page_text, Not(HasSubstr("http-equiv=\"refresh\"")));
  EXPECT_THAT(page_text, HasSubstr("Released under the MIT License"));
  EXPECT_THAT(page({}, {.title = "", .refresh_s = 5}), HasSubstr("http-equiv=\"refresh\" content=\"5\""));
}

TEST(PageTest, WhatIsFilledInIsNotLookedAtAgain) {
  EXPECT_EQ(filled("a{{X}}b{{Y}}c{{X}}", {{"X", "{{Y}}"}, {"Y", "1"}}), "a{{Y}}b1c{{Y}}");
}

TEST(HeadOfStepTest, IsTheBeginningOfTheLine) {
  const std::string line =
      R"({"event":"step","time_s":1.5,"step":3,"loss":"NaN","top1":null,"load_ms":0.5,"net":{"eth0":{"sent":1}}})";
  EXPECT_EQ(head_of_step(line), Json::parse(R"({"event":"step","time_s":1.5,"step":3,"loss":"NaN","top1":null})"));
  for (const char* other : {R"({"event":"step","step":3})", R"({"event":"step","step":[3],"load_ms":1})",
                            R"({"event":"step","step":3,"load_ms":1)", R"({"event":"step",garbage,"load_ms":1})", "{}"})
    EXPECT_TRUE(head_of_step(other).is_discarded()) << other;
}

TEST(HistoryTest, PartsAddUpToTheStep) {
  const Json line = Json::parse(
      R"({"step_ms":10,"load_ms":1,"forward_ms":2,"backward_ms":3,"transfer_ms":0.5,"allreduce_exposed_ms":1.5,
          "skew_ms":0.5,"optimizer_ms":0.25,"idle_ms":1.75,"bubble_fill_ms":0.5,"bubble_steady_ms":0,
          "bubble_drain_ms":0.25})");
  double sum = 0;
  for (const auto& [name, ms] : parts_of(line)) sum += ms;
  EXPECT_DOUBLE_EQ(sum, 10);
  EXPECT_TRUE(parts_of({{"step_ms", 10}, {"forward_ms", nullptr}}).empty());
}

TEST(HistoryTest, TakesRecordsOfAnyKind) {
  History history;
  for (const char* text : {R"({"event":"step"})", R"({"event":"step","step":"x","net":[1]})", R"({"event":"push"})",
                           R"({"event":"push","worker":-1,"step":1})", R"({"event":"transition","from":3})",
                           R"({"event":"eval","step":{},"loss":[]})"}) {
    const Json line = Json::parse(text);
    history.add(line, line["event"]);
  }
  EXPECT_TRUE(history.json()["curves"].empty());
}

// Of a long file most lines of steps are read by their heads; what the heads tell is exact all the same.
TEST(RecordLines, HeadsTellTheRateAndLinesWithDroppedSpansAreWhole) {
  const test::TempDir dir;
  std::string lines;
  for (int step = 1; step <= 100; ++step)
    lines += concat(R"({"event":"step","step":)", step, R"(,"samples":8,"step_ms":)", step % 2 ? 50 : 150,
                    R"(,"load_ms":1,"samples_per_s":)", step % 2 ? 160 : 8e3 / 150,
                    step == 42 ? R"(,"spans_dropped":3)" : "", "}\n");
  test::spill(dir / "metrics.jsonl", lines);
  RecordSums sums;
  std::int64_t incomplete = 0;
  const auto take = [&](const Json& line, const std::string&) {
    sums.add(line);
    incomplete += line.contains("spans_dropped");
  };
  (void)read_records(dir / "metrics.jsonl", take, 10);
  EXPECT_NEAR(sums.means().at("samples_per_s"), 80, 1e-4);
  EXPECT_EQ(incomplete, 1);
}

// An interface that a step does not name carried nothing in it, as in the means (record_sums.h).
TEST(HistoryTest, AnInterfaceThatIsNotNamedCarriedNothing) {
  History history;
  for (int step = 1; step <= 4; ++step) {
    Json line{{"event", "step"}, {"step", step}, {"net_bytes_per_s", step == 4 ? Json(nullptr) : Json(1.0)}};
    if (step % 2 == 1) line["net"] = {{"eth0", {{"sent", 7.0}, {"received", 3.0}}}};
    history.add(line, "step");
  }
  EXPECT_EQ(history.json()["network"]["eth0 sent"]["value"], Json({7.0, 0.0, 7.0}));
}

TEST(ProcessTimesTest, ASlotOfEachProcess) {
  const auto slot = [](double forward) {
    return Json{{"replica", 0},          {"stage", 0}, {"steps", 4}, {"step_ms", 5}, {"forward_ms", forward},
                {"idle_ms", 5 - forward}};
  };
  RunLog log;
  log.ranks = {{{"rank", 0}, {"host", "a"}, {"places", {slot(2)}}},
               {{"rank", 1}, {"host", "b"}, {"places", {slot(4)}}},
               "no rank",
               {{"rank", 2}, {"places", "none"}}};
  const Json times = process_times(log);
  EXPECT_EQ(times["of"], "all processes");
  ASSERT_EQ(times["rows"].size(), 2U);
  EXPECT_EQ(times["rows"][1]["name"], "rank 1, replica 0, stage 0");
  EXPECT_TRUE(process_times(RunLog{}).is_null());
}

}  // namespace
}  // namespace sluice::report
