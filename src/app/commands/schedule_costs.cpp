#include "app/commands/schedule_costs.h"

#include <cmath>
#include <cstddef>
#include <string_view>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/memory.h"

namespace sluice::app {
namespace {

constexpr double kLongestTime = 1e12;  // beyond it, a double no longer resolves times of 1 in a sum
// 4 TiB per device or micro-batch: the sum over all micro-batches of a schedule file cannot overflow.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 42U;

template <typename Value>
Value of_device(const std::vector<Value>& values, std::size_t device) {
  return values[values.size() == 1 ? 0 : device];
}

void require_length(std::size_t length, std::string_view option, std::string_view what, std::size_t devices) {
  if (length == 1 || length == devices) return;
  throw ConfigError(option, " has ", length, " ", what, " for ", devices,
                    " devices; give one for all, or one per device, separated by commas");
}

void require_times(const std::vector<double>& times, std::string_view option, std::size_t devices) {
  require_length(times.size(), option, "times", devices);
  for (const double time : times) {
    if (!std::isfinite(time) || time < 0 || time > kLongestTime) {
      throw ConfigError(
          concat(option, " has the time ", time, "; it must be a number from 0 to ", kLongestTime, ", in any unit"));
    }
  }
}

std::vector<std::int64_t> bytes_of(const std::vector<std::uint64_t>& bytes, std::string_view option,
                                   std::size_t devices) {
  if (!bytes.empty()) require_length(bytes.size(), option, "sizes", devices);
  std::vector<std::int64_t> of_all;
  for (std::size_t device = 0; device < devices; ++device) {
    const std::uint64_t size = bytes.empty() ? 0 : of_device(bytes, device);
    if (size > kMostBytes) {
      throw ConfigError(
          concat(option, " has the size ", human_bytes(size), "; it must be at most ", human_bytes(kMostBytes)));
    }
    of_all.push_back(static_cast<std::int64_t>(size));
  }
  return of_all;
}

// Empty if messages take no time beyond the hop.
std::vector<double> sent_bytes_of(const ScheduleArguments& arguments, const pipeline::Schedule& schedule) {
  if (arguments.sent_bytes.empty()) return {};
  if (!std::isfinite(arguments.bandwidth) || arguments.bandwidth <= 0) {
    throw ConfigError("--bandwidth is ", arguments.bandwidth, "; it must be a number above 0");
  }
  const auto of_devices = bytes_of(arguments.sent_bytes, "--sent-bytes", schedule.devices.size());
  std::vector<double> of_stages;
  for (const int owner : pipeline::stage_owners(schedule)) {
    const auto bytes = static_cast<double>(of_devices[static_cast<std::size_t>(owner)]);
    if (bytes / arguments.bandwidth > kLongestTime) {
      throw ConfigError("--sent-bytes over --bandwidth is a time of ", bytes / arguments.bandwidth,
                        "; it must be at most ", kLongestTime);
    }
    of_stages.push_back(bytes);
  }
  return of_stages;
}

}  // namespace

pipeline::Costs costs_of(const ScheduleArguments& arguments, const pipeline::Schedule& schedule) {
  const std::size_t devices = schedule.devices.size();
  require_times(arguments.forward, "--forward", devices);
  if (!arguments.backward.empty()) require_times(arguments.backward, "--backward", devices);
  require_times(arguments.input, "--input", devices);
  require_times(arguments.weight, "--weight", devices);
  require_times({arguments.hop}, "--hop", devices);
  if (std::isnan(arguments.overlap)) throw ConfigError("--overlap is not a number; it must be from 0 to 1");
  std::vector<pipeline::StepCost> of_devices;
  for (std::size_t device = 0; device < devices; ++device) {
    pipeline::StepCost& cost = of_devices.emplace_back();
    cost.forward = of_device(arguments.forward, device);
    cost.input = of_device(arguments.input, device);
    cost.weight = of_device(arguments.weight, device);
    if (!arguments.backward.empty()) cost.input = cost.weight = of_device(arguments.backward, device) / 2;
  }
  return {.stages = pipeline::share_costs(schedule, of_devices),
          .sent_bytes = sent_bytes_of(arguments, schedule),
          .link = {.latency = arguments.hop, .bytes_per_time = arguments.bandwidth},
          .overlap = arguments.overlap};
}

std::vector<std::int64_t> peak_bytes_of(const ScheduleArguments& arguments, const pipeline::Schedule& schedule) {
  const bool has_sizes =
      !arguments.fixed_bytes.empty() || !arguments.activation_bytes.empty() || !arguments.stash_bytes.empty();
  if (!has_sizes) {
    if (arguments.memory.empty()) return {};
    throw ConfigError("--memory needs --activation-bytes, --stash-bytes or --fixed-bytes; give one of them");
  }
  const std::size_t devices = schedule.devices.size();
  const auto fixed = bytes_of(arguments.fixed_bytes, "--fixed-bytes", devices);
  const auto activations = bytes_of(arguments.activation_bytes, "--activation-bytes", devices);
  const auto stashes =
      arguments.stash_bytes.empty() ? activations : bytes_of(arguments.stash_bytes, "--stash-bytes", devices);
  std::vector<pipeline::StageBytes> of_devices;
  for (std::size_t device = 0; device < devices; ++device)
    of_devices.push_back({fixed[device], activations[device], stashes[device]});
  const auto stages = pipeline::share_bytes(schedule, of_devices);
  if (!arguments.memory.empty())
    pipeline::require_bytes(schedule, stages, bytes_of(arguments.memory, "--memory", devices));
  return pipeline::peak_bytes(schedule, stages);
}

}  // namespace sluice::app
