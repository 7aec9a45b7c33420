// cost_cache: keeps measured layer costs and whole profiles between runs (`pipeline.cost_cache`) as profile files
// (docs/reference/profile_file.md). Ignores files of another build. Keeps nothing if memory is not counted
// (device/memory.h) or the machine was busy (LayerProfile::disturbance). Several processes may share a folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "measure/workload.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// choice: `pipeline.cost_cache`. Empty if the cache is off or there is no home folder.
[[nodiscard]] std::optional<std::filesystem::path> cost_cache_folder(const std::string& choice);

struct KeptCosts {
  profiler::LayerProfile profile;
  std::string source;  // "FILE (measured 3 h 20 min ago: slow-down 1.08, times scatter by 3.0 %)"
};

[[nodiscard]] std::optional<KeptCosts> find_costs(const std::string& choice, const Workload& workload,
                                                  std::int64_t micro_batch);
void keep_costs(const std::string& choice, const Workload& workload, profiler::LayerProfile profile);

// The last whole profile measured for this workload (`sluice profile`), for any plan and micro-batch.
[[nodiscard]] std::optional<KeptCosts> find_profile(const std::string& choice, const Workload& workload);
void keep_profile(const std::string& choice, const Workload& workload, profiler::LayerProfile profile);

}  // namespace sluice::measure
