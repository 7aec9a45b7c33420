#include "pipeline/schedule/timeline.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/concat.h"

namespace sluice::pipeline {
namespace {

constexpr std::size_t kIdle = static_cast<std::size_t>(-1);

// [column]: position of the action that runs at its middle.
std::vector<std::size_t> columns_of(const std::vector<Action>& actions, const std::vector<TimeSpan>& spans,
                                    double columns_per_time, std::size_t columns) {
  std::vector<std::size_t> line(columns, kIdle);
  for (std::size_t i = 0; i < actions.size(); i = unit_end(actions, i)) {
    const auto column_at = [&](double time) {
      return static_cast<std::size_t>(
          std::clamp(std::round(time * columns_per_time), 0.0, static_cast<double>(columns)));
    };
    for (std::size_t c = column_at(spans[i].start); c < column_at(spans[i].end); ++c) line[c] = i;
  }
  return line;
}

enum class Label : std::uint8_t { kText, kShort, kLetter };

StageId first_stage_of(const std::vector<Action>& actions) {
  return std::ranges::min(actions, {}, &Action::stage).stage;
}

std::string short_text(const Action& action, StageId first_stage) {
  std::string text(letter(action.op).substr(0, 1));
  if (action.stage != first_stage) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  if (action.op != Op::kReduceGradient) text += std::to_string(index(action.micro_batch));
  return text;
}

std::string label_of(const std::vector<Action>& actions, std::size_t unit, Label label, StageId first_stage) {
  const bool is_pair = unit_end(actions, unit) == unit + 2;
  switch (label) {
    case Label::kText: return unit_text(actions, unit);
    case Label::kShort:
      return short_text(actions[unit], first_stage) + (is_pair ? short_text(actions[unit + 1], first_stage) : "");
    case Label::kLetter: return is_pair ? "&" : std::string(letter(actions[unit].op).substr(0, 1));
  }
  return {};
}

// Columns per time at which each action has room for its label and a blank; infinite if an action takes no time.
double readable_scale(const Schedule& schedule, const Simulation& simulation, Label label) {
  double scale = 0;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const auto& actions = schedule.devices[device];
    const StageId first_stage = first_stage_of(actions);
    for (std::size_t i = 0; i < actions.size(); i = unit_end(actions, i)) {
      const TimeSpan& span = simulation.spans[device][i];
      if (actions[i].op == Op::kReduceGradient) continue;
      if (span.end <= span.start) return std::numeric_limits<double>::infinity();
      const std::size_t wanted = label_of(actions, i, label, first_stage).size() + 1;
      scale = std::max(scale, static_cast<double>(wanted) / (span.end - span.start));
    }
  }
  return scale;
}

int color_of(const std::vector<Action>& actions, std::size_t unit, bool bright) {
  constexpr int kBright = 60;  // from an ANSI background colour to its bright form
  constexpr int kPair = 47;    // white
  int color = 0;
  switch (actions[unit].op) {
    case Op::kForward: color = 44; break;         // blue
    case Op::kBackward: color = 42; break;        // green
    case Op::kInputGradient: color = 46; break;   // cyan
    case Op::kWeightGradient: color = 43; break;  // yellow
    case Op::kReduceGradient: color = 45; break;  // magenta
  }
  if (unit_end(actions, unit) == unit + 2) return kPair;
  return bright ? color + kBright : color;
}

class Painter {
 public:
  Painter(const std::vector<Action>& actions, Label label, bool color)
      : actions_(actions), label_(label), color_(color), first_stage_(first_stage_of(actions)) {}

  [[nodiscard]] std::string paint(const std::vector<std::size_t>& line) const {
    std::string text;
    for (std::size_t begin = 0; begin < line.size();) {
      const std::size_t unit = line[begin];
      std::size_t end = begin;
      while (end < line.size() && line[end] == unit) ++end;
      if (unit == kIdle) {
        text.append(end - begin, label_ == Label::kLetter ? '.' : ' ');
      } else {
        text += cell(unit, end - begin);
      }
      begin = end;
    }
    return text;
  }

 private:
  [[nodiscard]] std::string cell(std::size_t unit, std::size_t width) const {
    std::string inside = label_of(actions_, unit, label_, first_stage_);
    inside.resize(width, label_ == Label::kLetter ? inside.front() : ' ');
    if (!color_) return inside;
    const int color = color_of(actions_, unit, actions_[unit].stage != first_stage_);
    return concat("\x1b[30;", color, "m", inside, "\x1b[0m");
  }

  const std::vector<Action>& actions_;
  Label label_;
  bool color_;
  StageId first_stage_;
};

}  // namespace

std::string draw_timeline(const Schedule& schedule, const Simulation& simulation, const TimelineOptions& options) {
  if (simulation.makespan <= 0) return {};
  const auto most = static_cast<double>(options.columns);
  Label label = Label::kLetter;
  double scale = most / simulation.makespan;
  for (const Label longer : {Label::kShort, Label::kText}) {
    const double readable = readable_scale(schedule, simulation, longer);
    if (readable * simulation.makespan > most) break;
    label = longer;
    scale = readable;
  }
  const auto columns = static_cast<std::size_t>(std::ceil(scale * simulation.makespan - 1e-9));
  const std::size_t digits = std::to_string(schedule.devices.size() - 1).size();
  std::string text;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const auto& actions = schedule.devices[device];
    const std::string number = std::to_string(device);
    const auto line = columns_of(actions, simulation.spans[device], scale, columns);
    text += concat("device ", std::string(digits - number.size(), ' '), number, " |",
                   Painter(actions, label, options.color).paint(line), "|\n");
  }
  return text;
}

}  // namespace sluice::pipeline
