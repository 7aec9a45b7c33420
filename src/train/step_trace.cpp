#include "train/step_trace.h"

#include <unistd.h>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <system_error>

#include "comm/clock_offset.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kMostSteps = 1000;  // their spans stay in memory until they are written

std::optional<std::int64_t> step_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

// devices: replica by replica.
std::map<std::pair<ReplicaId, DeviceId>, std::string> names_of(const std::vector<device::Device>& devices,
                                                               const Plan& plan) {
  std::map<std::pair<ReplicaId, DeviceId>, std::string> names;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i)
    names[{ReplicaId{i / plan.devices()}, DeviceId{i % plan.devices()}}] = device::to_string(devices[i]);
  return names;
}

// network: null where it is not known.
std::map<std::string, double> counters_of(const StepSpans& spans, const StepStats& stats,
                                          const std::vector<device::Device>& devices,
                                          const profiler::NetworkRates* network) {
  const double seconds = to_s(spans.end - spans.begin);
  std::map<std::string, double> counters;
  if (seconds > 0) counters["samples/s of the run"] = static_cast<double>(stats.samples) / seconds;
  if (network != nullptr) counters["network MB/s"] = network->total * 1e-6;
  for (const device::Device& device : devices) {
    if (device.kind == device::DeviceKind::kCpu && !device::memory_is_counted()) continue;
    counters[concat("memory MB of ", device::to_string(device))] =
        static_cast<double>(device::memory_use(device).current) * 1e-6;
  }
  return counters;
}

std::string backend_of(const Setup& setup) {
  if (setup.process.processes == 1) return "";
  if (setup.config.replicas.backend != "auto") return setup.config.replicas.backend;
  return setup.devices.front().kind == device::DeviceKind::kCuda ? "nccl" : "gloo";
}

Nanoseconds since_1970() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StepRange parse_step_range(const std::string& text, const char* option) {
  if (text.empty()) return {};
  const std::size_t dots = text.find("..");
  const auto first = step_number(std::string_view(text).substr(0, dots));
  const auto last = dots == std::string::npos ? first : step_number(std::string_view(text).substr(dots + 2));
  if (!first || !last || *last < *first)
    throw ConfigError(concat(option, " ", text, " names no steps; write 10..14, or 10 for that step alone"));
  if (*last - *first >= kMostSteps)
    throw ConfigError(concat(option, " ", text, " asks for ", *last - *first + 1, " steps; at most ", kMostSteps,
                             " are kept in memory"));
  return {*first, *last};
}

void check_trace(bool is_wanted, const config::Config& config) {
  if (is_wanted && config.profile.level == "off")
    throw ConfigError("--trace needs what profile.level = \"off\" does not record; set profile.level = \"events\"");
}

std::string trace_file_name(int rank) { return concat("trace.rank", rank, ".json.gz"); }

std::filesystem::path trace_file_beside(const std::filesystem::path& file, int rank, int processes) {
  if (processes == 1) return file;
  const std::string name = file.filename().string();
  const std::size_t ending = name.rfind(".json");
  return file.parent_path() / concat(name.substr(0, ending), ".rank", rank, name.substr(ending));
}

void check_trace_file(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (file.empty() || name.ends_with(".json") || name.ends_with(".json.gz")) return;
  throw ConfigError(concat("--trace ", file.string(), ": a trace ends in .json or .json.gz, else nothing reads it"));
}

StepTrace::StepTrace(const Setup& setup, const comm::Communicator* others, StepRange steps, File file)
    : setup_(setup), others_(others), range_(steps), file_(std::move(file)), is_done_(steps.is_empty()) {}

void StepTrace::add(const StepSpans& spans, const StepStats& stats, const Plan& plan) {
  if (is_done_ || spans.step < range_.first) return;
  const profiler::NetworkRates& network = network_.rates();
  const std::vector<device::Device> devices = devices_for(setup_, plan.devices() * plan.replicas).devices;
  steps_.push_back(
      {spans, names_of(devices, plan), counters_of(spans, stats, devices, network_.is_known() ? &network : nullptr)});
  if (spans.step >= range_.last) write();
}

void StepTrace::finish() {
  if (is_done_) return;
  if (!steps_.empty()) return write();
  is_done_ = true;
  if (setup_.process.rank == 0)
    log_warning(concat("--trace: no step from ", range_.first, " to ", range_.last, " was made, so there is no trace"));
}

void StepTrace::write() {
  is_done_ = true;
  profiler::TraceProcess process{.rank = setup_.process.rank,
                                 .processes = setup_.process.processes,
                                 .host = host_name(),
                                 .pid = static_cast<int>(getpid()),
                                 .backend = backend_of(setup_),
                                 .base = steps_.front().spans.begin};
  process.base_epoch = since_1970() - (now_ns() - process.base);
  if (others_ != nullptr) {
    const comm::ClockOffset clock = comm::measure_clock_offset(*others_);
    process.clock = {clock.offset, clock.error};
    const std::string of_rank_0 = comm::broadcast_text(*others_, concat(process.base, " ", process.base_epoch), 0);
    const std::size_t space = of_rank_0.find(' ');
    process.base = std::stoll(of_rank_0.substr(0, space));
    process.base_epoch = std::stoll(of_rank_0.substr(space + 1));
  }
  const std::string own = profiler::trace_text(process, steps_);
  const auto traced = static_cast<std::int64_t>(steps_.size());
  steps_.clear();
  write_trace_files(others_, own, file_, concat("trace of ", counted(traced, "step")));
}

}  // namespace sluice::train
