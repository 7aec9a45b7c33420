#include "pipeline/schedule/draw.h"

#include <algorithm>

#include "core/concat.h"

namespace sluice::pipeline {
namespace {

constexpr std::size_t kWholeLine = 24;     // draw_grid shows up to this many actions in full
constexpr std::size_t kNeighbourhood = 8;  // otherwise: actions on each side of the current one

std::string grid_line(const std::vector<Action>& actions, std::size_t current) {
  std::size_t first = 0;
  std::size_t last = actions.size();
  if (actions.size() > kWholeLine) {
    const std::size_t middle = std::min(current, actions.size());
    first = middle - std::min(middle, kNeighbourhood);
    last = std::min(actions.size(), middle + kNeighbourhood + 1);
  }
  std::string line = first > 0 ? " ..." : "";
  for (std::size_t i = first; i < last; ++i) {
    line += i == current ? concat(" [", to_text(actions[i]), "]") : concat(" ", to_text(actions[i]));
  }
  if (last < actions.size()) line += " ...";
  if (current >= actions.size()) line += " (done)";
  return line;
}

}  // namespace

std::string draw(const Schedule& schedule) {
  std::string text =
      concat("schedule=", schedule.name, " stages=", schedule.stages, " micro_batches=", schedule.micro_batches, "\n");
  for (const auto& actions : schedule.devices) {
    std::string line;
    for (std::size_t i = 0; i < actions.size(); i = unit_end(actions, i)) {
      if (!line.empty()) line += ' ';
      line += unit_text(actions, i);
    }
    text += line.empty() ? "-\n" : line + "\n";
  }
  return text;
}

std::string draw_grid(const Schedule& schedule, const ActionMark& mark) {
  std::string text;
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    const auto& actions = schedule.devices[device];
    const std::size_t current = device < mark.current.size() ? mark.current[device] : 0;
    text += concat("device ", device, ":", grid_line(actions, current));
    if (mark.failed_device == static_cast<int>(device)) {
      text += concat("   <-- here", current < actions.size() ? concat(": ", to_text(actions[current])) : "");
    }
    text += '\n';
  }
  return text;
}

}  // namespace sluice::pipeline
