// resume_choice: which run "--resume" means, and in which directory it goes on.
// Not here: which checkpoint of it, and whether it can go on from there (resume.h).
// Threads: one. Errors: CheckpointError, DataError.
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"
#include "train/run/resume.h"

namespace sluice::train {

// The run to continue and the directory to write to.
struct ResumeChoice {
  std::filesystem::path run_dir;   // empty: a new one with the default name
  std::filesystem::path from;      // a run or checkpoint directory to continue from; empty: a new run begins
  bool continues_run_dir = false;  // `from` is the run directory or one of its checkpoints: its records are continued
};
// `resume`: "", "auto", a run directory or a checkpoint directory. Without a run directory "auto" takes the newest run
// that was made from this file and learned from the same model, data and training settings; which ones it skips, and
// why, is logged. For that it reads the config.toml of each candidate and, if only data.path differs, its newest
// checkpoint and the data.
[[nodiscard]] ResumeChoice choose_resume(const std::string& resume, const std::filesystem::path& run_dir,
                                         const std::filesystem::path& config_file, const config::Config& config,
                                         NewData new_data = NewData::kRefused);

// A comment line for a run directory's config.toml, by which "auto" tells the runs of this file from those of another
// of the same name.
[[nodiscard]] std::string origin_line(const std::filesystem::path& config_file);

}  // namespace sluice::train
