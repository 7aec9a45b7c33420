// run_dir: the directory of one run: its layout (docs/reference/files.md), its creation and its lock against other
// processes. Only rank 0 makes one. Threads: one. Errors: ConfigError if the directory cannot be used (another run, in
// use, nothing to resume); StorageError if it cannot be written.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files.h"

namespace sluice::storage {

enum class RunDirMode {
  kNew,          // rejects a directory that holds a run
  kResume,       // rejects a directory without a run
  kResumeOrNew,  // for launchers that restart the same command
  kTakeOver,     // like kResume if the owner may still run; rejects a directory that cannot be locked
};

class RunDir {
 public:
  RunDir(std::filesystem::path dir, RunDirMode mode);

  // Creates parent/<config_name>-<date>-<time>[-n], with local time: 20250131-235959.
  static RunDir create_named(const std::filesystem::path& parent, std::string_view config_name);

  static std::vector<std::filesystem::path> named(const std::filesystem::path& parent, std::string_view config_name);

  static std::string trace_name(int rank);
  static std::string worker_trace_name(int worker);
  static std::string torch_trace_name(int rank);
  static std::map<int, std::filesystem::path> traces(const std::filesystem::path& dir);
  static std::map<int, std::filesystem::path> torch_traces(const std::filesystem::path& dir);

  [[nodiscard]] bool resumes() const { return resumes_; }

  // Returns a function that removes this run's files, but none that existed before, from a directory that held no run,
  // and the directory if the run created it. The function may be called from any thread and ignores failures.
  [[nodiscard]] std::function<void()> discarding() const;

  [[nodiscard]] const std::filesystem::path& path() const { return dir_; }
  [[nodiscard]] std::filesystem::path config_file() const { return dir_ / "config.toml"; }
  [[nodiscard]] std::filesystem::path metrics_file() const { return dir_ / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path csv_file() const { return dir_ / "metrics.csv"; }
  [[nodiscard]] std::filesystem::path log_file() const { return dir_ / "log.txt"; }
  [[nodiscard]] std::filesystem::path tensorboard_dir() const { return dir_ / "tensorboard"; }
  [[nodiscard]] std::filesystem::path checkpoints_dir() const { return dir_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path pushes_dir() const { return dir_ / "pushes"; }

  // Whether the directory is still the one that was created or opened. presence() makes three system calls.
  enum class Presence {
    kThere,
    kGone,      // removed or renamed
    kReplaced,  // gone, and another directory has its name
  };
  [[nodiscard]] Presence presence() const;

  void write_config(std::string_view toml) const { write_text_atomically(config_file(), toml); }

 private:
  std::filesystem::path dir_;
  FileDescriptor lock_;
  FileDescriptor open_dir_;
  bool resumes_ = false;
  bool is_new_ = false;
  std::vector<std::string> own_names_;  // names that a run creates and that did not exist before
};

}  // namespace sluice::storage
