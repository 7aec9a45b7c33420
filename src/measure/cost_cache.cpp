#include "measure/cost_cache.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"
#include "measure/fingerprint_of.h"
#include "storage/files.h"

namespace sluice::measure {
namespace {

namespace fs = std::filesystem;

// The path must be absolute, as the XDG base directory specification requires.
std::optional<fs::path> folder_from(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || !fs::path(value).is_absolute()) return std::nullopt;
  return fs::path(value);
}

std::string name_of_profile(const profiler::LayerProfile& profile) {
  return concat(profile.fingerprint.model.name, "-", profiler::short_hash(profile.fingerprint), ".json");
}

std::string name_of_costs(const profiler::LayerProfile& profile) {
  return concat(profile.fingerprint.model.name, "-", profiler::short_hash(profile.fingerprint), "-",
                profile.micro_batch, ".json");
}

// A new build may have other kernels under the same version. Empty if unknown, for example after its file was replaced.
std::optional<std::string> identity_of_program() {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  const auto size = fs::file_size(program, unknown);
  const auto time = fs::last_write_time(program, unknown).time_since_epoch().count();
  return unknown ? std::nullopt : std::optional(concat(size, " bytes of ", time));
}

profiler::Fingerprint key_of(const Workload& workload) { return fingerprint_of(workload, ""); }

std::string source_of(const fs::path& file, const profiler::LayerProfile& profile) {
  std::error_code unknown;
  const auto age = fs::file_time_type::clock::now() - fs::last_write_time(file, unknown);
  const double seconds = std::max(0.0, std::chrono::duration<double>(age).count());
  return concat(file.string(), " (", unknown ? "" : concat("measured ", human_duration(seconds), " ago: "),
                profile.describe_quality(), ")");
}

std::optional<KeptCosts> find(const std::string& choice, const Workload& workload, const profiler::LayerProfile& wanted,
                              const std::string& name) {
  const auto folder = cost_cache_folder(choice);
  const auto identity = identity_of_program();
  if (!folder || !identity) return std::nullopt;
  const fs::path file = *folder / name;
  std::error_code unknown;
  if (!fs::exists(file, unknown)) return std::nullopt;
  try {
    profiler::LayerProfile found = profiler::read_profile(file);
    if (found.fingerprint.sluice != *identity) return std::nullopt;
    found.fingerprint.sluice = wanted.fingerprint.sluice;
    if (found.fingerprint == wanted.fingerprint && static_cast<int>(found.layers.size()) == workload.layers)
      return KeptCosts{found, source_of(file, found)};
    log_warning(file.string(), " belongs to another machine or model; measuring again");
  } catch (const Error& error) {
    log_warning(file.string(), " cannot be read; measuring again and replacing the file");
    log_debug(error.what());
  }
  return std::nullopt;
}

void keep(const std::string& choice, const Workload& workload, profiler::LayerProfile profile,
          const std::string& name) {
  const auto folder = cost_cache_folder(choice);
  const auto identity = identity_of_program();
  const bool has_all = device::peak_bytes(workload.device).has_value();
  if (!folder || !identity || !has_all) return;
  if (const std::string why = profile.disturbance(); !why.empty())
    return log_warning("not saving the measured costs in ", folder->string(), ": the machine was busy (", why,
                       "); measure again on a quiet machine");
  profile.fingerprint.sluice = *identity;
  try {
    storage::make_directories(*folder);
    storage::write_text_atomically(*folder / name, profiler::to_json_text(profile));
  } catch (const Error& error) {
    log_warning("cannot save the measured layer costs: ", error.what(),
                "; set pipeline.cost_cache to another folder or to \"off\"");
  }
}

}  // namespace

std::optional<fs::path> cost_cache_folder(const std::string& choice) {
  if (choice == "off") return std::nullopt;
  if (choice != "auto") return fs::path(choice);
  if (const auto cache = folder_from("XDG_CACHE_HOME")) return *cache / "sluice" / "costs";
  if (const auto home = folder_from("HOME")) return *home / ".cache" / "sluice" / "costs";
  return std::nullopt;
}

std::optional<KeptCosts> find_costs(const std::string& choice, const Workload& workload, std::int64_t micro_batch) {
  profiler::LayerProfile wanted{.fingerprint = key_of(workload), .micro_batch = micro_batch};
  auto found = find(choice, workload, wanted, name_of_costs(wanted));
  if (!found || found->profile.micro_batch == micro_batch) return found;
  return std::nullopt;
}

void keep_costs(const std::string& choice, const Workload& workload, profiler::LayerProfile profile) {
  profile.fingerprint = key_of(workload);
  const std::string name = name_of_costs(profile);
  keep(choice, workload, std::move(profile), name);
}

std::optional<KeptCosts> find_profile(const std::string& choice, const Workload& workload) {
  const profiler::LayerProfile wanted{.fingerprint = key_of(workload)};
  return find(choice, workload, wanted, name_of_profile(wanted));
}

void keep_profile(const std::string& choice, const Workload& workload, profiler::LayerProfile profile) {
  profile.fingerprint = key_of(workload);
  const std::string name = name_of_profile(profile);
  keep(choice, workload, std::move(profile), name);
}

}  // namespace sluice::measure
