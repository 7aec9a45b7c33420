// tune_files: what `sluice tune` writes: the configuration with its plan and, beside it, the profiles that it has
// measured, so that `sluice simulate` can predict the plan again. A profile that was there is replaced; what is none
// stays. Errors: ConfigError where something else has the name of the profile, StorageError where a file cannot be
// written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/study/tuning.h"

namespace sluice::app {

// Behind the chosen plan, where no run has verified it.
inline constexpr const char* kNotVerified = ", the best by prediction, not verified by a run";

struct TuneFiles {
  std::string out;                    // the configuration
  std::vector<std::string> profiles;  // that were measured, that of the chosen plan first
  std::vector<std::string> replaced;  // of these, those whose name another one had
  std::string simulate;               // the command that predicts the plan again
};

// Before anything is measured. inputs: files that are read. measures: no profile is given.
void check_tune_files(const std::filesystem::path& out, const std::vector<std::filesystem::path>& inputs,
                      bool measures);

// The configuration that the plan was found for, as its user wrote it.
struct ConfigText {
  std::string file;
  std::string text;
};

// The configuration that is written is the user's text with the values that have changed, by --set too.
[[nodiscard]] TuneFiles write_tune_files(const train::TuneResult& result, const std::filesystem::path& out,
                                         const ConfigText& config);

}  // namespace sluice::app
