#include <algorithm>
#include <filesystem>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/commands/replay_edits.h"
#include "app/commands/replay_report.h"
#include "app/options.h"
#include "core/error.h"
#include "core/text.h"
#include "profiler/trace_steps.h"
#include "storage/run_dir.h"
#include "storage/unpacked_file.h"
#include "tune/step_replay.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using profiler::TracedStep;
using profiler::TraceOfProcess;

struct ReplayArguments {
  std::vector<fs::path> traces;
  std::optional<std::int64_t> step;
  ReplayEdits edits;
  OutputArguments output;
};

constexpr std::int64_t kUnpackedLimit = 4'000'000'000;

std::vector<fs::path> trace_files(const std::vector<fs::path>& given) {
  std::vector<fs::path> files;
  for (const fs::path& path : given) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      files.push_back(path);
      continue;
    }
    const auto traces = storage::RunDir::traces(path);
    if (traces.empty()) {
      throw ConfigError(printable(path.string()), " holds no ", storage::RunDir::trace_name(0),
                        "; record some steps with `sluice train CONFIG --run-dir DIR --trace 10..14`");
    }
    for (const auto& [rank, file] : traces) files.push_back(file);
  }
  return files;
}

TraceOfProcess read_trace_file(const fs::path& file) {
  const std::string name = printable(file.string());
  storage::UnpackedFile unpacked(file, kUnpackedLimit);
  if (!unpacked.is_open()) throw ConfigError("the trace ", name, " cannot be opened; check its name and permissions");
  std::istream in(&unpacked);
  TraceOfProcess trace = profiler::read_trace_steps(in, name);
  if (unpacked.is_damaged()) throw DataError(name, " is damaged or was cut; copy it again");
  if (trace.has_own_clock) {
    throw ConfigError(name, " is the trace of a parameter server or its worker, whose steps are independent; replay ",
                      "reads the traces of other training runs");
  }
  return trace;
}

std::vector<TraceOfProcess> read_trace_files(const std::vector<fs::path>& given) {
  std::vector<TraceOfProcess> traces;
  for (const fs::path& file : trace_files(given)) traces.push_back(read_trace_file(file));
  std::ranges::sort(traces, {}, &TraceOfProcess::rank);
  const TraceOfProcess& first = traces.front();
  const auto is_of_another = [&](const TraceOfProcess& trace) {
    return trace.base_epoch != first.base_epoch || trace.processes != first.processes;
  };
  if (std::ranges::any_of(traces, is_of_another))
    throw ConfigError("the traces belong to different runs; give the files of one run");
  for (int rank = 0; rank < std::max<int>(first.processes, static_cast<int>(traces.size())); ++rank) {
    if (rank < static_cast<int>(traces.size()) && traces[rank].rank == rank) continue;
    throw ConfigError("the trace of rank ", rank, " of ", counted(first.processes, "process"),
                      " is missing, or another one is given twice; give the file of each process once, or the run ",
                      "directory");
  }
  return traces;
}

const TracedStep* step_of(const TraceOfProcess& trace, std::int64_t number) {
  const auto found = std::ranges::find(trace.steps, number, [](const TracedStep& step) { return step.spans.step; });
  return found != trace.steps.end() ? &*found : nullptr;
}

// Returns the numbers of the steps that all processes recorded, shortest step first.
std::vector<std::int64_t> common_steps(const std::vector<TraceOfProcess>& traces) {
  std::vector<std::pair<Nanoseconds, std::int64_t>> steps;
  for (const TracedStep& step : traces.front().steps) {
    const std::int64_t number = step.spans.step;
    const auto has_it = [&](const TraceOfProcess& trace) { return step_of(trace, number) != nullptr; };
    if (std::ranges::all_of(traces, has_it)) steps.emplace_back(step.spans.end - step.spans.begin, number);
  }
  std::ranges::sort(steps);
  std::vector<std::int64_t> numbers;
  for (const auto& [length, number] : steps) numbers.push_back(number);
  return numbers;
}

std::int64_t chosen_step(const std::vector<std::int64_t>& steps, std::optional<std::int64_t> wanted) {
  if (steps.empty()) throw DataError("the trace has no complete step of all processes; record it again");
  if (!wanted) return steps[(steps.size() - 1) / 2];
  if (std::ranges::find(steps, *wanted) != steps.end()) return *wanted;
  const auto [first, last] = std::ranges::minmax(steps);
  throw ConfigError("--step ", *wanted, ": the trace has no such step; it has ", steps.size(), ", from ", first, " to ",
                    last);
}

tune::RecordedProcess recorded_process(const TracedStep& step) {
  tune::RecordedProcess process{.spans = step.spans, .devices = {}};
  for (const StepSpans::Slot& slot : step.spans.slots) {
    const auto name = step.devices.find({slot.replica, slot.device});
    process.devices.push_back(name != step.devices.end() ? name->second : "");
  }
  return process;
}

std::vector<tune::RecordedProcess> recorded_step(const std::vector<TraceOfProcess>& traces, std::int64_t number) {
  std::vector<tune::RecordedProcess> processes;
  for (const TraceOfProcess& trace : traces) processes.push_back(recorded_process(*step_of(trace, number)));
  return processes;
}

// Other work of the processes only lengthens an all-reduce. Requires: replayable steps.
double shortest_sum_of_all(const std::vector<TraceOfProcess>& traces, const std::vector<std::int64_t>& steps) {
  std::optional<double> shortest;
  for (const std::int64_t number : steps) {
    const std::optional<double> of_step = tune::shortest_sum(recorded_step(traces, number));
    if (of_step && (!shortest || *of_step < *shortest)) shortest = of_step;
  }
  return shortest.value_or(0);
}

void run_replay(const ReplayArguments& arguments) {
  tune::StepEdits edits = arguments.edits.parse();
  const std::vector<TraceOfProcess> traces = read_trace_files(arguments.traces);
  const std::vector<std::int64_t> steps = common_steps(traces);
  ReplayFindings findings{.recorded = recorded_step(traces, chosen_step(steps, arguments.step)),
                          .edits = arguments.edits.texts()};
  findings.unedited = tune::replay_step(findings.recorded);
  if (edits.network && arguments.edits.latency.empty()) edits.network->sum_s = shortest_sum_of_all(traces, steps);
  findings.edited = tune::replay_step(findings.recorded, edits);
  arguments.output.print(json_of_replay(findings), text_of_replay(findings));
}

}  // namespace

void add_replay(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("replay", "Replay a step of a trace with edits: a faster stage, another network");
  const auto arguments = std::make_shared<ReplayArguments>();
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command->add_option(name, value, help)->type_name(type);
  };
  add("TRACE", arguments->traces, "A run directory, or the trace files of all processes (`train --trace 10..14`)",
      "PATH")
      ->required()
      ->check(not_empty);
  add("--step", arguments->step, "Number of the step; default: the step of median length", "N");
  add("--scale", arguments->edits.scale,
      "Multiply the time of this work by FACTOR; may be repeated: stage:1=0.8 forward=0.5 "
      "stage:1,backward=2 device:cpu:1=1.3 rank:0=1.1 load=2 all-reduce=0.1",
      "WHAT=FACTOR")
      ->allow_extra_args(false);
  add("--add", arguments->edits.add, "Add TIME (negative: subtract) to each piece of this work: stage:1,forward=5ms",
      "WHAT=TIME")
      ->allow_extra_args(false);
  add("--bandwidth", arguments->edits.bandwidth,
      "Bandwidth of the network between any two processes: 10Gbit/s, 1.25GB/s", "RATE")
      ->check(not_empty);
  add("--latency", arguments->edits.latency,
      "Latency of a message on that network: 50us; default: 0, and each all-reduce also costs the "
      "time of the shortest recorded one",
      "TIME")
      ->check(not_empty);
  arguments->output.add_to(*command);
  command->callback([arguments] { run_replay(*arguments); });
}

}  // namespace sluice::app
