#include "pipeline/schedule/svg.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::pipeline {
namespace {

constexpr double kWidest = 4000;    // pixels of the time axis
constexpr double kPerAction = 34;   // pixels of the shortest action, where that is not too wide
constexpr double kLabel = 70;       // pixels left of the time axis
constexpr double kRow = 26;         // pixels from row to row
constexpr double kBox = 22;         // height of a box
constexpr double kPerLetter = 6.5;  // width of a letter at the font size below
constexpr double kTop = 30;         // title above the rows

std::string_view fill_of(Op op) {
  switch (op) {
    case Op::kForward: return "#6fa8dc";
    case Op::kBackward: return "#93c47d";
    case Op::kInputGradient: return "#76d7c4";
    case Op::kWeightGradient: return "#ffd966";
    case Op::kReduceGradient: return "#c27ba0";
  }
  check(false, "unknown operation in a schedule");
  return "#ffffff";
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

// A device's first stage is plain, its later ones darker and darker.
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
  constexpr double kDarker = 0.12;
  constexpr double kLightest = 0.4;
  const double opacity = std::max(kLightest, 1.0 - kDarker * rank);
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
    const double height = kBox / static_cast<double>(end - begin);  // the parts of a pair lie one above the other
    for (std::size_t i = begin; i < end; ++i) {
      const Box box{kLabel + spans[i].start * scale, top + height * static_cast<double>(i - begin),
                    (spans[i].end - spans[i].start) * scale, height};
      svg += draw_box(actions[i], to_text(actions[i]), spans[i], box, rank.at(actions[i].stage));
    }
  }
  return svg;
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const Simulation& simulation) {
  const double scale = simulation.makespan > 0 ? scale_of(simulation) : 1;
  const double width = kLabel + simulation.makespan * scale + 10;
  const double height = kTop + kRow * static_cast<double>(schedule.devices.size()) + 10;
  std::string svg =
      concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", pixels(width), "\" height=\"", pixels(height),
             "\" font-family=\"monospace\" font-size=\"10\">\n<style>rect{stroke:#555;stroke-width:0.4}</style>\n<text "
             "x=\"4\" "
             "y=\"18\" font-size=\"13\">",
             schedule.name, ": ", schedule.devices.size(), " devices, ", schedule.stages, " stages, ",
             schedule.micro_batches, " chunks; makespan ", number_text(simulation.makespan), ", bubble ",
             fixed(100 * simulation.bubble_fraction, 2), " %</text>\n");
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const double top = kTop + kRow * static_cast<double>(device);
    svg += concat("<text x=\"4\" y=\"", pixels(top + kBox / 2 + 3.5), "\">device ", device, "</text>\n");
    svg += draw_row(schedule.devices[device], simulation.spans[device], scale, top);
  }
  return svg + "</svg>\n";
}

}  // namespace sluice::pipeline
