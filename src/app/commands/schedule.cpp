#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "core/text_table.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/progress.h"
#include "pipeline/schedule/simulate.h"
#include "pipeline/schedule/svg.h"
#include "pipeline/schedule/timeline.h"
#include "pipeline/schedule/validate.h"
#include "train/one_shot.h"
#include "train/records/storage.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostActions = 20'000'000;     // a picture of more helps nobody, and it fits any memory
constexpr double kLongestTime = 1e12;                 // beside it times of 1 still count, after any number of steps
constexpr std::uintmax_t kLargestFile = 256U << 20U;  // bytes of an order file

struct ScheduleArguments {
  std::string name;
  std::string order;  // file
  std::optional<int> stages;
  std::optional<int> chunks;
  std::optional<int> virtual_stages;
  std::vector<double> forward{1};
  std::vector<double> backward;  // empty: input and weight say it
  std::vector<double> input{1};
  std::vector<double> weight{1};
  double hop = 0;
  double overlap = 0;
  std::string svg;
  OutputArguments output;
};

std::string read_order(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed))
    throw ConfigError(concat(path, ": is a folder; give a file with one line of actions per device"));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(concat(path, ": cannot be read; give a file with one line of actions per device"));
  std::string text;
  for (char block[1 << 16]; in.read(block, sizeof block) || in.gcount() > 0;) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kLargestFile)
      throw ConfigError(concat(path, ": larger than ", human_bytes(kLargestFile), "; this is no order of actions"));
  }
  return text;
}

// A number that was given on the command line besides the file must be the file's.
void require_same(std::optional<int> given, int found, std::string_view option, const std::string& path) {
  if (given && *given != found)
    throw ConfigError(concat(path, " has ", found, " where ", option, " says ", *given, "; leave ", option, " out"));
}

pipeline::Schedule read_schedule(const ScheduleArguments& arguments) {
  pipeline::Schedule schedule = pipeline::parse_schedule(read_order(arguments.order), arguments.order);
  require_same(arguments.stages, static_cast<int>(schedule.devices.size()), "--stages", arguments.order);
  require_same(arguments.chunks, schedule.micro_batches, "--chunks", arguments.order);
  if (arguments.virtual_stages) {
    require_same(arguments.virtual_stages, pipeline::most_stages_per_device(schedule), "--virtual", arguments.order);
  }
  return schedule;
}

pipeline::Schedule generate(const ScheduleArguments& arguments) {
  if (arguments.name.empty() || !arguments.stages || !arguments.chunks) {
    throw ConfigError(concat("schedule needs NAME, --stages and --chunks, or --order FILE; NAME is one of: ",
                             join(pipeline::schedule_names(), ", "), "; see `sluice schedule --help`"));
  }
  const int virtual_stages = arguments.virtual_stages.value_or(pipeline::default_virtual_stages(arguments.name));
  const std::int64_t most = 3 * std::int64_t{*arguments.stages} * virtual_stages * *arguments.chunks;
  if (most > kMostActions) {
    throw ConfigError(concat("--stages ", *arguments.stages, " --chunks ", *arguments.chunks, " with ", virtual_stages,
                             " virtual stages a device make up to ", most, " actions, more than ", kMostActions,
                             "; ask for fewer"));
  }
  return pipeline::make_schedule(
      arguments.name,
      {.stages = *arguments.stages, .micro_batches = *arguments.chunks, .virtual_stages = arguments.virtual_stages});
}

double time_of(const std::vector<double>& times, std::size_t device) { return times[times.size() == 1 ? 0 : device]; }

void require_times(const std::vector<double>& times, std::string_view option, std::size_t devices) {
  if (times.size() != 1 && times.size() != devices) {
    throw ConfigError(concat(option, " has ", times.size(), " times for ", devices,
                             " devices; give one for all, or one for each, parted by commas"));
  }
  for (const double time : times) {
    if (!std::isfinite(time) || time < 0 || time > kLongestTime) {
      throw ConfigError(
          concat(option, " has the time ", time, "; it must be a number from 0 to ", kLongestTime, ", in any unit"));
    }
  }
}

pipeline::Costs costs_of(const ScheduleArguments& arguments, const pipeline::Schedule& schedule) {
  const std::size_t devices = schedule.devices.size();
  require_times(arguments.forward, "--forward", devices);
  if (!arguments.backward.empty()) require_times(arguments.backward, "--backward", devices);
  require_times(arguments.input, "--input", devices);
  require_times(arguments.weight, "--weight", devices);
  require_times({arguments.hop}, "--hop", devices);
  if (std::isnan(arguments.overlap)) throw ConfigError("--overlap is no number; it must be from 0 to 1");
  std::vector<pipeline::StepCost> of_devices;
  for (std::size_t device = 0; device < devices; ++device) {
    pipeline::StepCost& cost = of_devices.emplace_back();
    cost.forward = time_of(arguments.forward, device);
    cost.input = time_of(arguments.input, device);
    cost.weight = time_of(arguments.weight, device);
    if (!arguments.backward.empty()) cost.input = cost.weight = time_of(arguments.backward, device) / 2;
  }
  pipeline::Costs costs{.stages = pipeline::share_costs(schedule, of_devices), .sent_bytes = {}, .link = {}};
  costs.link.latency = arguments.hop;
  costs.overlap = arguments.overlap;
  return costs;
}

// Per device, the most live micro-batches, where one counts whole when all stages of the device keep it.
std::vector<double> peak_in_stage_units(const pipeline::Schedule& schedule) {
  const auto peaks = pipeline::peak_in_flight(schedule);
  const auto counts = pipeline::stages_per_device(schedule);
  std::vector<double> units;
  for (std::size_t device = 0; device < peaks.size(); ++device)
    units.push_back(static_cast<double>(peaks[device]) / counts[device]);
  return units;
}

ordered_json to_json(const pipeline::Schedule& schedule, const pipeline::Simulation& simulation) {
  ordered_json idle = ordered_json::array();
  for (const auto& device : simulation.devices) idle.push_back(device.idle);
  ordered_json order = ordered_json::array();
  for (const auto& actions : schedule.devices) {
    ordered_json& of_device = order.emplace_back(ordered_json::array());
    for (std::size_t i = 0; i < actions.size(); i = pipeline::unit_end(actions, i))
      of_device.push_back(pipeline::unit_text(actions, i));
  }
  return {{"name", schedule.name},
          {"stages", schedule.devices.size()},
          {"virtual", pipeline::most_stages_per_device(schedule)},
          {"chunks", schedule.micro_batches},
          {"makespan", simulation.makespan},
          {"bubble_fraction", simulation.bubble_fraction},
          {"barrier_bubble", simulation.barrier_bubble},
          {"window_bubble", simulation.window_bubble},
          {"idle", std::move(idle)},
          {"peak_in_flight", peak_in_stage_units(schedule)},
          {"receive_buffers", pipeline::needed_receive_buffers(schedule)},
          {"order", std::move(order)}};
}

// Columns of the terminal that are left for the picture.
std::size_t picture_columns() {
  constexpr std::size_t kDefault = 160;
  constexpr std::size_t kMargin = 16;  // "device 63 |...|"
  winsize size{};
  const bool is_terminal = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 2 * kMargin;
  return is_terminal ? size.ws_col - kMargin : kDefault;
}

// https://no-color.org
bool wants_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

std::string to_text(const pipeline::Schedule& schedule, const pipeline::Simulation& simulation) {
  std::string text =
      concat(schedule.name, ": ", counted(static_cast<std::int64_t>(schedule.devices.size()), "device"), ", ",
             counted(schedule.stages, "stage"), ", ", counted(schedule.micro_batches, "chunk"), "\n",
             pipeline::draw_timeline(schedule, simulation, {.columns = picture_columns(), .color = wants_color()}),
             "\nmakespan ", simulation.makespan, "  bubble ", fixed(100 * simulation.bubble_fraction, 2),
             " %  barrier bubble ", simulation.barrier_bubble, "  window bubble ", simulation.window_bubble, "\n\n");
  std::vector<TextRow> rows{{"device", "busy", "idle", "idle %", "micro-batches kept"}};
  const auto peaks = peak_in_stage_units(schedule);
  for (std::size_t device = 0; device < simulation.devices.size(); ++device) {
    const auto& times = simulation.devices[device];
    const double share = simulation.makespan > 0 ? 100 * times.idle / simulation.makespan : 0;
    rows.push_back(
        {std::to_string(device), concat(times.busy), concat(times.idle), fixed(share, 2), concat(peaks[device])});
  }
  return text + text_table(rows);
}

// The proof names actions by device and position; the file they come from is named here.
pipeline::Schedule proved_schedule(const ScheduleArguments& arguments) {
  const pipeline::Schedule schedule = arguments.order.empty() ? generate(arguments) : read_schedule(arguments);
  try {
    pipeline::validate(schedule);
  } catch (const ConfigError& error) {
    if (arguments.order.empty()) throw;
    throw ConfigError(concat(arguments.order, ": ", error.what()));
  }
  return schedule;
}

void run(const ScheduleArguments& arguments) {
  if (!arguments.svg.empty() && !arguments.order.empty())
    train::check_output("--svg", arguments.svg, {arguments.order});
  const pipeline::Schedule schedule = proved_schedule(arguments);
  const pipeline::Simulation simulation = pipeline::simulate(schedule, costs_of(arguments, schedule));
  if (!arguments.svg.empty()) train::write_text_atomically(arguments.svg, pipeline::draw_svg(schedule, simulation));
  if (arguments.output.json) {
    arguments.output.print(to_json(schedule, simulation), "");
  } else {
    arguments.output.print({}, to_text(schedule, simulation));
  }
}

void add_cost_options(CLI::App& command, ScheduleArguments& arguments) {
  const auto add_times = [&](const std::string& name, std::vector<double>& times, const std::string& help) {
    return command.add_option(name, times, help)->type_name("T[,T...]")->delimiter(',');
  };
  add_times(
      "--forward", arguments.forward,
      "Time of the forwards of one micro-batch on a device, all its virtual stages together, in any unit; one for "
      "all devices or one for each (default 1)");
  auto* backward =
      add_times("--backward", arguments.backward, "The same of its backwards; I and W take half of it each");
  auto* input =
      add_times("--input", arguments.input, "Instead of --backward: time of the input gradients, I (default 1)");
  auto* weight =
      add_times("--weight", arguments.weight, "Instead of --backward: time of the weight gradients, W (default 1)");
  backward->excludes(input)->excludes(weight);
  input->needs(weight);
  weight->needs(input);
  command.add_option("--hop", arguments.hop, "Time that a result takes from one device to another (default 0)")
      ->type_name("T");
  command
      .add_option("--overlap", arguments.overlap,
                  "Share of the shorter part of an overlapped pair that the longer one hides, 0 to 1 (default 0)")
      ->type_name("R")
      ->check(CLI::Range(0.0, 1.0));
}

}  // namespace

void add_schedule(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "schedule", "Draw and cost a pipeline schedule, or prove one of your own: what each device does, in which order");
  const auto arguments = std::make_shared<ScheduleArguments>();
  auto* name = command->add_option("NAME", arguments->name, concat("One of: ", join(pipeline::schedule_names(), ", ")));
  command->add_option("--stages", arguments->stages, "Devices of the pipeline")
      ->type_name("P")
      ->check(CLI::Range(1, 1024));
  command->add_option("--chunks", arguments->chunks, "Micro-batches of a step")
      ->type_name("M")
      ->check(CLI::Range(1, 65'536));
  command
      ->add_option("--virtual", arguments->virtual_stages,
                   "Stages a device: any number for interleaved and looped-bfs (default 2), 2 for zb-v and dualpipe-v")
      ->type_name("V")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option(
          "--order", arguments->order,
          "Instead of NAME: a file with one line of actions per device, such as 0F0 0F1 0I0 0W0 (3F2;0B1), or a "
          "CSV dump of torch.distributed.pipelining")
      ->type_name("FILE")
      ->check(not_empty)
      ->excludes(name);
  add_cost_options(*command, *arguments);
  command->add_option("--svg", arguments->svg, "Write a picture, too")->type_name("FILE")->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace sluice::app
