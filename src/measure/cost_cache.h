// cost_cache: measured layer costs kept between runs (`pipeline.cost_cache`): a profile file (docs/reference/profile_file.md) for each
// fingerprint of machine, software and model, and size of a micro-batch; and beside them whole profiles. One that
// another build of this program wrote is not used: it may have run other kernels. Nothing is kept where memory is not
// counted (device/memory.h), nor of a machine that was busy (LayerProfile::disturbance). Nothing depends on the cache:
// a file that cannot be read is measured again, and one that cannot be written is warned of. Several processes may use
// one folder at once. Not here: measuring (measure_layers.h). Threads: any.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "measure/workload.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// choice: `pipeline.cost_cache`. Nothing where nothing is kept: as configured, or because there is no home folder.
[[nodiscard]] std::optional<std::filesystem::path> cost_cache_folder(const std::string& choice);

struct KeptCosts {
  profiler::LayerProfile profile;
  std::string source;  // "FILE (measured 3 h 20 min ago: slow-down 1.08, times scatter by 3.0 %)"
};

[[nodiscard]] std::optional<KeptCosts> find_costs(const std::string& choice, const Workload& workload,
                                                  std::int64_t micro_batch);
// Fingerprints are put in here.
void keep_costs(const std::string& choice, const Workload& workload, profiler::LayerProfile profile);

// The last whole profile that was measured of this workload (`sluice profile`), whatever its plan and micro-batch.
[[nodiscard]] std::optional<KeptCosts> find_profile(const std::string& choice, const Workload& workload);
void keep_profile(const std::string& choice, const Workload& workload, profiler::LayerProfile profile);

}  // namespace sluice::measure
