// resume_choice: finds the run for "--resume" and its directory. Threads: one. Errors: CheckpointError, DataError.
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"
#include "train/run/resume.h"

namespace sluice::train {

struct ResumeChoice {
  std::filesystem::path run_dir;   // empty: a new one with the default name
  std::filesystem::path from;      // run or checkpoint directory to continue; empty: a new run
  bool continues_run_dir = false;  // `from` is the run directory or in it, so its records continue
};
// resume: "", "auto", a run directory or a checkpoint directory. Without a run directory, "auto" takes the newest run
// of this file with the same model, data and training settings. It logs which runs it skips and why. It reads each
// candidate's config.toml and, if only data.path differs, its newest checkpoint and the data.
[[nodiscard]] ResumeChoice choose_resume(const std::string& resume, const std::filesystem::path& run_dir,
                                         const std::filesystem::path& config_file, const config::Config& config,
                                         NewData new_data = NewData::kRefused);

// A comment line in config.toml that lets "auto" distinguish the runs of equally named files.
[[nodiscard]] std::string origin_line(const std::filesystem::path& config_file);

}  // namespace sluice::train
