#include "train/study/memory_by_profile.h"

#include <algorithm>
#include <memory>

#include "core/concat.h"
#include "core/error.h"
#include "train/plan/what_if.h"

namespace sluice::train {
namespace {

bool counts_memory(const profiler::LayerProfile& profile) {
  const auto takes_memory = [](const profiler::MeasuredLayer& layer) {
    return layer.cost.working.forward != AffineBytes{};
  };
  const auto has_sizes = [](const profiler::MeasuredLayer& layer) { return !layer.bytes.empty(); };
  return std::ranges::any_of(profile.layers, takes_memory) && std::ranges::all_of(profile.layers, has_sizes);
}

}  // namespace

tune::MemoryQuestion memory_question(const config::Config& config, const profiler::LayerProfile& profile,
                                     const std::string& file, int processes) {
  if (config.device.memory_limit.bytes == 0)
    throw ConfigError("the memory limit is unknown; pass --limit SIZE (for example 16GiB), or set device.memory_limit");
  if (!counts_memory(profile))
    throw ConfigError(
        concat("the profile ", file, " lacks the memory of its layers; measure again with `sluice profile`"));
  const tune::PlanRequest request = request_by_profile(config, profile, processes);
  tune::MemoryQuestion question{.request = request,
                                .overheads = overheads_by_profile(config, profile, request.uncut(), processes),
                                .limit = static_cast<std::uint64_t>(config.device.memory_limit.bytes)};
  for (const profiler::LayerBytes& line : profile.layers.front().bytes) question.measured.push_back(line.samples);
  question.costs_at = [kept = std::make_shared<const profiler::LayerProfile>(profile)](std::int64_t samples) {
    return tune::MemoryCosts{.expected = kept->costs_at(samples), .most = kept->most_at(samples)};
  };
  return question;
}

}  // namespace sluice::train
