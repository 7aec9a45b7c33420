// tune_files: writes the configuration with the chosen plan and the measured profiles of `sluice tune`. Errors:
// ConfigError if another file has the profile's name, StorageError if a file cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/study/tuning.h"

namespace sluice::app {

// Suffix for a chosen plan that no run has verified.
inline constexpr const char* kNotVerified = ", the best by prediction, not verified by a run";

struct TuneFiles {
  std::string out;
  std::vector<std::string> profiles;  // measured profiles, first the chosen plan's
  std::vector<std::string> replaced;  // entries of `profiles` that replaced an existing file
  std::string simulate;
};

// Call before measuring. inputs: files that are read. measures: true if no profile is given.
void check_tune_files(const std::filesystem::path& out, const std::vector<std::filesystem::path>& inputs,
                      bool measures);

struct ConfigText {
  std::string file;
  std::string text;
};

// Writes the user's text with the changed values, including changes by --set.
[[nodiscard]] TuneFiles write_tune_files(const train::TuneResult& result, const std::filesystem::path& out,
                                         const ConfigText& config);

}  // namespace sluice::app
