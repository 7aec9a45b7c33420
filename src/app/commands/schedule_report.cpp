#include "app/commands/schedule_report.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/progress.h"
#include "pipeline/schedule/timeline.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using pipeline::number_text;

// A micro-batch counts as 1 if all stages of the device hold it.
std::vector<double> peak_in_stage_units(const pipeline::Schedule& schedule) {
  const auto peaks = pipeline::peak_in_flight(schedule);
  const auto counts = pipeline::stages_per_device(schedule);
  std::vector<double> units;
  for (std::size_t device = 0; device < peaks.size(); ++device)
    units.push_back(static_cast<double>(peaks[device]) / counts[device]);
  return units;
}

std::size_t picture_columns() {
  constexpr std::size_t kDefault = 160;
  constexpr std::size_t kMargin = 16;  // "device 63 |...|"
  winsize size{};
  const bool is_terminal = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 2 * kMargin;
  return is_terminal ? size.ws_col - kMargin : kDefault;
}

bool wants_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

std::string table_of(const ScheduleFindings& findings) {
  const pipeline::Simulation& simulation = findings.simulation;
  std::vector<TextRow> rows{{"device", "busy", "idle", "idle %", "in flight"}};
  if (!findings.peak_bytes.empty()) rows[0].emplace_back("peak memory");
  const auto peaks = peak_in_stage_units(findings.schedule);
  for (std::size_t device = 0; device < simulation.devices.size(); ++device) {
    const auto& times = simulation.devices[device];
    const double share = simulation.makespan > 0 ? 100 * times.idle / simulation.makespan : 0;
    rows.push_back({std::to_string(device), number_text(times.busy), number_text(times.idle), fixed(share, 2),
                    number_text(peaks[device])});
    if (!findings.peak_bytes.empty())
      rows.back().push_back(human_bytes(static_cast<std::uint64_t>(findings.peak_bytes[device])));
  }
  return text_table(rows);
}

}  // namespace

ordered_json to_json(const ScheduleFindings& findings) {
  const auto& [schedule, simulation, peak_bytes] = findings;
  ordered_json idle = ordered_json::array();
  for (const auto& device : simulation.devices) idle.push_back(device.idle);
  ordered_json order = ordered_json::array();
  for (const auto& actions : schedule.devices) {
    ordered_json& of_device = order.emplace_back(ordered_json::array());
    for (std::size_t i = 0; i < actions.size(); i = pipeline::unit_end(actions, i))
      of_device.push_back(pipeline::unit_text(actions, i));
  }
  ordered_json object{{"name", schedule.name},
                      {"stages", schedule.devices.size()},
                      {"virtual", pipeline::most_stages_per_device(schedule)},
                      {"chunks", schedule.micro_batches},
                      {"makespan", simulation.makespan},
                      {"bubble_fraction", simulation.bubble_fraction},
                      {"barrier_bubble", simulation.barrier_bubble},
                      {"window_bubble", simulation.window_bubble},
                      {"idle", std::move(idle)},
                      {"peak_in_flight", peak_in_stage_units(schedule)}};
  if (!peak_bytes.empty()) object["peak_bytes"] = peak_bytes;
  object["receive_buffers"] = pipeline::needed_receive_buffers(schedule);
  object["order"] = std::move(order);
  return object;
}

std::string to_text(const ScheduleFindings& findings) {
  const auto& [schedule, simulation, peak_bytes] = findings;
  return concat(schedule.name, ": ", counted(static_cast<std::int64_t>(schedule.devices.size()), "device"), ", ",
                counted(schedule.stages, "stage"), ", ", counted(schedule.micro_batches, "chunk"), "\n",
                pipeline::draw_timeline(schedule, simulation, {.columns = picture_columns(), .color = wants_color()}),
                "\nmakespan ", number_text(simulation.makespan), "  bubble ",
                fixed(100 * simulation.bubble_fraction, 2), " %  barrier bubble ",
                number_text(simulation.barrier_bubble), "  window bubble ", number_text(simulation.window_bubble),
                "\n\n", table_of(findings));
}

}  // namespace sluice::app
