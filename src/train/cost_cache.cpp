#include "train/cost_cache.h"

#include <cstdlib>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "train/fingerprint_of.h"
#include "train/records/storage.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

// Absolute, as the XDG base directory specification asks.
std::optional<fs::path> folder_from(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr || !fs::path(value).is_absolute()) return std::nullopt;
  return fs::path(value);
}

fs::path file_of(const fs::path& folder, const profiler::LayerProfile& profile) {
  return folder / concat(profile.fingerprint.model, "-", profiler::short_hash(profile.fingerprint), "-",
                         profile.micro_batch, ".json");
}

// The program is part of no fingerprint: its time stands for it.
bool is_older_than_program(const fs::path& file) {
  std::error_code unknown;
  const auto kept = fs::last_write_time(file, unknown);
  if (unknown) return true;
  const auto program = fs::last_write_time(fs::read_symlink("/proc/self/exe", unknown), unknown);
  return !unknown && kept < program;
}

}  // namespace

std::optional<fs::path> cost_cache_folder(const config::Config& config) {
  const std::string& choice = config.pipeline.cost_cache;
  if (choice == "off") return std::nullopt;
  if (choice != "auto") return fs::path(choice);
  if (const auto cache = folder_from("XDG_CACHE_HOME")) return *cache / "sluice" / "costs";
  if (const auto home = folder_from("HOME")) return *home / ".cache" / "sluice" / "costs";
  return std::nullopt;
}

std::optional<profiler::LayerProfile> find_costs(const Setup& setup, std::int64_t micro_batch) {
  const auto folder = cost_cache_folder(setup.config);
  if (!folder) return std::nullopt;
  const profiler::LayerProfile wanted{.fingerprint = fingerprint_of(setup, ""), .micro_batch = micro_batch};
  const fs::path file = file_of(*folder, wanted);
  std::error_code unknown;
  if (!fs::exists(file, unknown) || is_older_than_program(file)) return std::nullopt;
  try {
    profiler::LayerProfile found = profiler::read_profile(file);
    const bool is_of_this = found.fingerprint == wanted.fingerprint && found.micro_batch == micro_batch &&
                            static_cast<int>(found.layers.size()) == setup.layers;
    if (is_of_this) {
      log_info(concat("layer costs come from ", file.string(), "; delete it to measure again"));
      return found;
    }
    log_warning(concat(file.string(), " is not of this machine and model; measuring again"));
  } catch (const Error& error) {
    log_warning(concat("measuring again: ", error.what()));
  }
  return std::nullopt;
}

void keep_costs(const Setup& setup, const profiler::LayerProfile& profile) {
  const auto folder = cost_cache_folder(setup.config);
  if (!folder) return;
  try {
    make_directories(*folder);
    write_text_atomically(file_of(*folder, profile), profiler::to_json_text(profile));
  } catch (const Error& error) {
    log_warning(concat("the measured layer costs are not kept: ", error.what(),
                       " (pipeline.cost_cache names another folder, or \"off\")"));
  }
}

}  // namespace sluice::train
