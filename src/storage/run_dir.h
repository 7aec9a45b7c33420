// run_dir: the directory of one run: its layout, its creation and the lock that keeps other processes out.
// Not here: what is in the files. Only rank 0 makes one.
// Layout: config.toml (resolved), metrics.jsonl, log.txt, tensorboard/, checkpoints/step-N/, pushes/,
// trace.rankN.json.gz, torch_trace.rankN.json.gz, workers/ (not the owner's: report/worker_writer.h), .lock (holds host
// and process of the owner; stays behind, an flock on it is what counts). Threads: one. Errors: ConfigError when the
// directory is not for us (another run, in use, nothing to resume); StorageError when it cannot be written.
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
  kNew,          // refuses a directory that holds a run
  kResume,       // refuses a directory that holds none
  kResumeOrNew,  // for launchers that start the same command again
  kTakeOver,     // as kResume, of an owner that may still run: refuses one that cannot be locked
};

class RunDir {
 public:
  // Creates `dir`, or takes what is there as `mode` allows, and locks it for the life of the object.
  RunDir(std::filesystem::path dir, RunDirMode mode);

  // parent/<config_name>-<date>-<time>[-n], new; date and time are local: 20250131-235959.
  static RunDir create_named(const std::filesystem::path& parent, std::string_view config_name);

  // The directories that create_named(parent, config_name) has made, newest first.
  static std::vector<std::filesystem::path> named(const std::filesystem::path& parent, std::string_view config_name);

  // Of a process's trace; of one by a worker of a parameter server, in its own directory; of one by LibTorch's
  // profiler.
  static std::string trace_name(int rank);
  static std::string worker_trace_name(int worker);
  static std::string torch_trace_name(int rank);
  // The files in `dir` that have such a name, by rank.
  static std::map<int, std::filesystem::path> traces(const std::filesystem::path& dir);
  static std::map<int, std::filesystem::path> torch_traces(const std::filesystem::path& dir);

  // True when the directory held a run before.
  [[nodiscard]] bool resumes() const { return resumes_; }

  // Removes what a run has put into a directory that held none before it records anything, but nothing that was there
  // before, and the directory if it was made for it. The answer owns what it uses, and may be called from any thread;
  // failures are passed over.
  [[nodiscard]] std::function<void()> discarding() const;

  [[nodiscard]] const std::filesystem::path& path() const { return dir_; }
  [[nodiscard]] std::filesystem::path config_file() const { return dir_ / "config.toml"; }
  [[nodiscard]] std::filesystem::path metrics_file() const { return dir_ / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path csv_file() const { return dir_ / "metrics.csv"; }
  [[nodiscard]] std::filesystem::path log_file() const { return dir_ / "log.txt"; }
  [[nodiscard]] std::filesystem::path tensorboard_dir() const { return dir_ / "tensorboard"; }
  [[nodiscard]] std::filesystem::path checkpoints_dir() const { return dir_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path pushes_dir() const { return dir_ / "pushes"; }

  // Whether the directory is still the one that was made or taken. Three system calls.
  enum class Presence {
    kThere,
    kGone,      // removed, or renamed
    kReplaced,  // removed or renamed, and another is in its place
  };
  [[nodiscard]] Presence presence() const;

  // Replaces config.toml atomically.
  void write_config(std::string_view toml) const { write_text_atomically(config_file(), toml); }

 private:
  std::filesystem::path dir_;
  FileDescriptor lock_;
  FileDescriptor open_dir_;  // tells whether it has been removed
  bool resumes_ = false;
  bool is_new_ = false;                 // made by this object
  std::vector<std::string> own_names_;  // of what a run puts into it, those that were not there before
};

}  // namespace sluice::storage
