#include "pipeline/schedule/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::pipeline {
namespace {

constexpr double kWidest = 4000;   // pixels of the time axis, as all lengths below
constexpr double kPerAction = 34;  // shortest action, unless the axis becomes too wide
constexpr double kLabel = 70;      // left of the time axis
constexpr double kRow = 26;        // from row to row
constexpr double kBox = 22;
constexpr double kPerLetter = 6.5;  // width of a letter in a box
constexpr double kLine = 16;        // from line to line of the legend
constexpr double kTitleLetter = 8;  // width of a letter of the title
constexpr double kTitle = 26;
constexpr double kAxis = 40;
constexpr double kPerTick = 60;  // least distance of ticks
constexpr double kMargin = 10;

struct OpStyle {
  Op op;
  std::string_view fill, meaning;
};
constexpr std::array kStyles{OpStyle{Op::kForward, "#6fa8dc", "forward"}, OpStyle{Op::kBackward, "#93c47d", "backward"},
                             OpStyle{Op::kInputGradient, "#76d7c4", "input gradient"},
                             OpStyle{Op::kWeightGradient, "#ffd966", "weight gradient"},
                             OpStyle{Op::kReduceGradient, "#c27ba0", "gradients summed over replicas"}};

std::string_view fill_of(Op op) {
  const auto* const found = std::ranges::find(kStyles, op, &OpStyle::op);
  check(found != kStyles.end(), "a known operation in a schedule");
  return found->fill;
}

std::string pixels(double value) { return fixed(value, 2); }

double scale_of(const Simulation& simulation) {
  double shortest = simulation.makespan;
  for (const auto& spans : simulation.spans) {
    for (const auto& span : spans) {
      if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
    }
  }
  return std::min(kWidest / simulation.makespan, kPerAction / shortest);
}

std::map<StageId, int> rank_of_stages(const std::vector<Action>& actions) {
  std::map<StageId, int> rank;
  for (const auto& action : actions) rank.emplace(action.stage, 0);
  int next = 0;
  for (auto& [stage, number] : rank) number = next++;
  return rank;
}

struct Box {
  double left;
  double top;
  double width;
  double height;
};

std::string draw_box(const Action& action, const std::string& text, const TimeSpan& span, const Box& box, int rank) {
  constexpr double kPaler = 0.12;
  constexpr double kPalest = 0.4;
  const double opacity = std::max(kPalest, 1.0 - kPaler * rank);
  std::string svg =
      concat("<g><title>", text, " ", number_text(span.start), " to ", number_text(span.end), "</title><rect x=\"",
             pixels(box.left), "\" y=\"", pixels(box.top), "\" width=\"", pixels(box.width), "\" height=\"",
             pixels(box.height), "\" fill=\"", fill_of(action.op), "\" fill-opacity=\"", fixed(opacity, 2), "\"/>");
  if (kPerLetter * static_cast<double>(text.size()) <= box.width) {
    svg += concat("<text x=\"", pixels(box.left + box.width / 2), "\" y=\"", pixels(box.top + box.height / 2 + 3.5),
                  "\" text-anchor=\"middle\">", text, "</text>");
  }
  return svg + "</g>\n";
}

std::string draw_row(const std::vector<Action>& actions, const std::vector<TimeSpan>& spans, double scale, double top) {
  const auto rank = rank_of_stages(actions);
  std::string svg;
  for (std::size_t begin = 0; begin < actions.size(); begin = unit_end(actions, begin)) {
    const std::size_t end = unit_end(actions, begin);
    const double height = kBox / static_cast<double>(end - begin);  // the parts of a pair are stacked
    for (std::size_t i = begin; i < end; ++i) {
      const Box box{kLabel + spans[i].start * scale, top + height * static_cast<double>(i - begin),
                    (spans[i].end - spans[i].start) * scale, height};
      svg += draw_box(actions[i], to_text(actions[i]), spans[i], box, rank.at(actions[i].stage));
    }
  }
  return svg;
}

template <typename Predicate>
bool has_action(const Schedule& schedule, const Predicate& is_meant) {
  return std::ranges::any_of(schedule.devices,
                             [&](const auto& actions) { return std::ranges::any_of(actions, is_meant); });
}

struct LegendEntry {
  std::string_view fill;  // of the square before the text; empty: no square
  std::string text;
};

std::vector<LegendEntry> legend_of(const Schedule& schedule) {
  std::vector<LegendEntry> entries;
  for (const OpStyle& style : kStyles) {
    if (has_action(schedule, [&](const Action& action) { return action.op == style.op; }))
      entries.push_back({style.fill, concat(letter(style.op), " ", style.meaning)});
  }
  entries.push_back({"#ffffff", "waiting"});
  if (schedule.stages > std::ssize(schedule.devices)) entries.push_back({{}, "paler: a later stage of the device"});
  if (has_action(schedule, [](const Action& action) { return action.overlaps_next; }))
    entries.push_back({{}, "one above the other: at the same time"});
  return entries;
}

struct Legend {
  std::string svg;
  double height = 0;
};

Legend draw_legend(const std::vector<LegendEntry>& entries, double width) {
  constexpr double kSquare = 10, kGap = 14;
  Legend legend{.svg = {}, .height = kLine};
  double left = 4;
  for (const auto& [fill, text] : entries) {
    const double square = fill.empty() ? 0 : kSquare + 4;
    const double needed = square + kPerLetter * static_cast<double>(text.size());
    if (left > 4 && left + needed > width) {
      left = 4;
      legend.height += kLine;
    }
    const double base = kTitle + legend.height - 5;
    if (!fill.empty()) {
      legend.svg += concat("<rect x=\"", pixels(left), "\" y=\"", pixels(base - kSquare + 1.5), "\" width=\"", kSquare,
                           "\" height=\"", kSquare, "\" fill=\"", fill, "\"/>");
    }
    legend.svg += concat("<text x=\"", pixels(left + square), "\" y=\"", pixels(base), "\">", text, "</text>\n");
    left += needed + kGap;
  }
  return legend;
}

// The least of 1, 2 or 5 times a power of ten at or above `least`; 0 if that is not finite and positive.
double round_step(double least) {
  if (!(least > 0) || !std::isfinite(least)) return 0;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= least) return times * power;
  }
  return 10 * power;
}

std::string draw_axis(double makespan, double scale, double top, double bottom) {
  const double step = round_step(kPerTick / scale);
  const int last = step > 0 ? static_cast<int>(makespan / step) : 0;
  std::string svg = concat("<path class=\"axis\" d=\"M", pixels(kLabel), " ", pixels(bottom), "h",
                           pixels(makespan * scale), "\"/>\n");
  for (int tick = 0; tick <= last; ++tick) {
    const double at = kLabel + tick * step * scale;
    svg += concat("<path class=\"tick\" d=\"M", pixels(at), " ", pixels(top), "V", pixels(bottom + 4), "\"/><text x=\"",
                  pixels(at), "\" y=\"", pixels(bottom + 14), "\" text-anchor=\"middle\">", number_text(tick * step),
                  "</text>\n");
  }
  return svg + concat("<text x=\"", pixels(kLabel), "\" y=\"", pixels(bottom + 28),
                      "\">time, in the unit of the costs</text>\n");
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const Simulation& simulation) {
  const double scale = simulation.makespan > 0 ? scale_of(simulation) : 1;
  const std::string title =
      concat(schedule.name, ": ", schedule.devices.size(), " devices, ", schedule.stages, " stages, ",
             schedule.micro_batches, " chunks; makespan ", number_text(simulation.makespan), ", bubble ",
             fixed(100 * simulation.bubble_fraction, 2), " %");
  const double width =
      std::max(kLabel + simulation.makespan * scale, kTitleLetter * static_cast<double>(title.size())) + kMargin;
  const Legend legend = draw_legend(legend_of(schedule), width);
  const double top = kTitle + legend.height + 4;
  const double bottom = top + kRow * static_cast<double>(schedule.devices.size());
  const std::string across = pixels(width), down = pixels(bottom + kAxis);
  std::string svg = concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", across, "\" height=\"", down,
                           "\" viewBox=\"0 0 ", across, " ", down,
                           "\" font-family=\"monospace\" font-size=\"10\">\n<style>rect{stroke:#555;stroke-width:0.4} "
                           ".axis{stroke:#555} .tick{stroke:#ccc}</style>\n"
                           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\" style=\"stroke:none\"/>\n"
                           "<text x=\"4\" y=\"18\" font-size=\"13\">",
                           title, "</text>\n", legend.svg, draw_axis(simulation.makespan, scale, top, bottom));
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const double row = top + kRow * static_cast<double>(device);
    svg += concat("<text x=\"4\" y=\"", pixels(row + kBox / 2 + 3.5), "\">device ", device, "</text>\n");
    svg += draw_row(schedule.devices[device], simulation.spans[device], scale, row);
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::pipeline
