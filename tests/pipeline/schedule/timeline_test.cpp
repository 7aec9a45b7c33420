// The pictures of a simulated schedule: text, colours, SVG.
#include "pipeline/schedule/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/shapes.h"
#include "pipeline/schedule/svg.h"

namespace sluice::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

std::string timeline(const Schedule& schedule, const StepCost& cost, const TimelineOptions& options) {
  return draw_timeline(schedule, simulate(schedule, test::even_costs(schedule, cost)), options);
}

TEST(Timeline, EachActionIsAsWideAsItIsLong) {
  EXPECT_EQ(timeline(make_1f1b({.stages = 2, .micro_batches = 2}), {1, 1, 1}, {.columns = 80}),
            "device 0 |0F0 0F1         0B0         0B1     |\n"
            "device 1 |    1F0 1B0     1F1 1B1             |\n");
  EXPECT_EQ(timeline(make_zb_h1({.stages = 2, .micro_batches = 2}), {1, 1, 1}, {.columns = 80}),
            "device 0 |0F0 0F1     0I0 0W0 0I1 0W1 |\n"
            "device 1 |    1F0 1I0 1F1 1I1 1W0 1W1 |\n");
}

TEST(Timeline, PairsAreOneBox) {
  EXPECT_EQ(timeline(parse_schedule("0F0 (0F1;0B0) 0B1"), {1, 1, 1}, {.columns = 80}),
            "device 0 |0F0 (0F1;0B0)   0B1     |\n");
}

TEST(Timeline, WithLittleRoomTheStageIsLeftOut) {
  EXPECT_EQ(timeline(make_looped_bfs({.stages = 1, .micro_batches = 1}), {1, 1, 1}, {.columns = 20}),
            "device 0 |F0 f0 b0    B0    |\n");
  EXPECT_EQ(timeline(parse_schedule("0F0 (0F1;0B0) 0B1"), {1, 1, 1}, {.columns = 20}),
            "device 0 |F0 F1B0     B1    |\n");
}

TEST(Timeline, WithoutRoomForTextAColumnHasALetter) {
  EXPECT_EQ(timeline(parse_schedule("0F0 (0F1;0B0) 0B1"), {1, 1, 1}, {.columns = 12}), "device 0 |FF&&&&&&BBBB|\n");
  EXPECT_EQ(timeline(make_1f1b({.stages = 2, .micro_batches = 2}), {1, 1, 1}, {.columns = 9}),
            "device 0 |FF..BB.BB|\n"
            "device 1 |.FBBFBB..|\n");
  const std::string wide = timeline(make_zb_v({.stages = 16, .micro_batches = 128}), {1, 1, 1}, {.columns = 100});
  EXPECT_EQ(count(wide, "\n"), 16U);
  EXPECT_EQ(wide.find('\n'), std::string("device 15 |").size() + 100 + 1);
  EXPECT_THAT(wide, StartsWith("device  0 |F"));
}

TEST(Timeline, ColourIsOnlyThereWhenAskedFor) {
  const Schedule schedule = make_interleaved({.stages = 2, .micro_batches = 2});
  const std::string plain = timeline(schedule, {1, 1, 1}, {.columns = 200});
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  std::string coloured = timeline(schedule, {1, 1, 1}, {.columns = 200, .color = true});
  EXPECT_THAT(coloured, HasSubstr("\x1b[30;44m0F0"));   // blue
  EXPECT_THAT(coloured, HasSubstr("\x1b[30;104m2F0"));  // bright blue: a later stage of the device
  for (auto begin = coloured.find('\x1b'); begin != std::string::npos; begin = coloured.find('\x1b'))
    coloured.erase(begin, coloured.find('m', begin) + 1 - begin);
  EXPECT_EQ(coloured, plain);
  EXPECT_THAT(timeline(parse_schedule("0F0 (0F1;0B0) 0B1"), {1, 1, 1}, {.columns = 200, .color = true}),
              HasSubstr("\x1b[30;47m(0F1;0B0)"));  // white: both
}

TEST(Timeline, NothingTakesNoPicture) {
  EXPECT_EQ(timeline(make_gpipe({.stages = 1, .micro_batches = 1}), {0, 0, 0}, {}), "");
}

TEST(Svg, HasABoxPerAction) {
  test::for_each_shape(3, 7, 2, [](const test::NamedShape& shape) {
    const Schedule schedule = shape.make();
    std::size_t actions = 0;
    for (const auto& of_device : schedule.devices) actions += of_device.size();
    const std::string svg = draw_svg(schedule, simulate(schedule, test::even_costs(schedule, {1, 2, 1})));
    EXPECT_EQ(count(svg, "<g><title>"), actions) << shape.text();
    EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
    EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    const auto attribute = [&](const std::string& name) {
      const auto begin = svg.find(name + "=\"") + name.size() + 2;
      return svg.substr(begin, svg.find('"', begin) - begin);
    };
    EXPECT_EQ(attribute("viewBox"), "0 0 " + attribute(" width") + " " + attribute(" height"));
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
  });
}

TEST(Svg, ABoxTellsItsTimes) {
  const Schedule schedule = make_1f1b({.stages = 2, .micro_batches = 2});
  const std::string svg = draw_svg(schedule, simulate(schedule, test::even_costs(schedule, {1, 1, 1})));
  EXPECT_THAT(svg, HasSubstr("<title>1B0 2 to 4</title>"));
  EXPECT_THAT(svg, HasSubstr("1f1b: 2 devices, 2 stages, 2 chunks; makespan 9, bubble 33.33 %"));
  const std::string late = draw_svg(schedule, simulate(schedule, test::even_costs(schedule, {1234567, 1, 1})));
  EXPECT_THAT(late, HasSubstr("<title>1F0 1234567 to 2469134</title>"));
  EXPECT_THAT(late, HasSubstr("makespan 3703707, bubble"));
}

TEST(Svg, TheLegendNamesWhatIsThereAndNothingElse) {
  const auto picture = [](const Schedule& schedule) {
    return draw_svg(schedule, simulate(schedule, test::even_costs(schedule, {1, 1, 1})));
  };
  const std::string plain = picture(make_1f1b({.stages = 2, .micro_batches = 2}));
  EXPECT_THAT(plain, AllOf(HasSubstr(">F forward</text>"), HasSubstr(">B backward</text>")));
  EXPECT_THAT(plain, Not(AnyOf(HasSubstr("input gradient"), HasSubstr("weight gradient"), HasSubstr("replicas"),
                               HasSubstr("paler"), HasSubstr("at the same time"))));
  const std::string split = picture(make_zb_v({.stages = 2, .micro_batches = 4}));
  EXPECT_THAT(split, AllOf(HasSubstr(">I input gradient</text>"), HasSubstr(">W weight gradient</text>"),
                           HasSubstr("paler: a later stage of the device"), Not(HasSubstr("B backward"))));
  EXPECT_THAT(picture(parse_schedule("0F0 (0F1;0B0) 0B1 0REDUCE_GRAD")),
              AllOf(HasSubstr("at the same time"), HasSubstr(">REDUCE_GRAD gradients summed over replicas</text>")));
  // The square has the colour of the boxes.
  EXPECT_THAT(plain, HasSubstr("fill=\"#6fa8dc\"/><text x=\"18.00\" y=\"37.00\">F forward"));
}

TEST(Svg, PairsLieOneAboveTheOtherAndLaterStagesArePaler) {
  const auto picture = [](const Schedule& schedule) {
    return draw_svg(schedule, simulate(schedule, test::even_costs(schedule, {1, 1, 1})));
  };
  const std::string pair = picture(parse_schedule("0F0 (0F1;0B0) 0B1"));
  EXPECT_THAT(pair,
              HasSubstr("<title>0F1 1 to 4</title><rect x=\"104.00\" y=\"46.00\" width=\"102.00\" height=\"11.00\""));
  EXPECT_THAT(pair,
              HasSubstr("<title>0B0 1 to 4</title><rect x=\"104.00\" y=\"57.00\" width=\"102.00\" height=\"11.00\""));
  const std::string looped = picture(make_looped_bfs({.stages = 1, .micro_batches = 1}));
  EXPECT_EQ(count(looped, "fill-opacity=\"1.00\""), 2U) << "F and B of stage 0";
  EXPECT_EQ(count(looped, "fill-opacity=\"0.88\""), 2U) << "and of stage 1";
}

TEST(Svg, TheTimeAxisHasRoundTicks) {
  const Schedule schedule = make_1f1b({.stages = 2, .micro_batches = 2});
  const auto ticks = [&](double unit) {
    const std::string svg = draw_svg(schedule, simulate(schedule, test::even_costs(schedule, {unit, unit, unit})));
    EXPECT_THAT(svg, HasSubstr(">time, in the unit of the costs</text>"));
    EXPECT_EQ(count(svg, "class=\"axis\""), 1U);
    std::vector<std::string> labels;
    constexpr std::string_view kLabel = "text-anchor=\"middle\">";
    for (auto at = svg.find("class=\"tick\""); at != std::string::npos; at = svg.find("class=\"tick\"", at + 1)) {
      const auto begin = svg.find(kLabel, at) + kLabel.size();
      labels.push_back(svg.substr(begin, svg.find('<', begin) - begin));
    }
    return labels;
  };
  EXPECT_THAT(ticks(1), ElementsAre("0", "2", "4", "6", "8"));
  EXPECT_THAT(ticks(0.025), ElementsAre("0", "0.05", "0.1", "0.15", "0.2"));
  EXPECT_THAT(ticks(300), ElementsAre("0", "1000", "2000"));
  EXPECT_THAT(ticks(0), ElementsAre("0"));
}

}  // namespace
}  // namespace sluice::pipeline
