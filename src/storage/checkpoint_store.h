// checkpoint_store: the checkpoints of one run, RUN/checkpoints/step-N. A crash at any instant leaves each checkpoint
// whole or absent.
// Threads: one at a time; one store per directory (between processes, the lock of the run directory ensures it).
// Errors: StorageError if a save fails, DivergedError if its tensors are not finite; both leave older checkpoints
// untouched and nothing new. Damaged checkpoints are skipped with a warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "storage/checkpoint.h"

namespace sluice::storage {

struct CheckpointScan {
  std::optional<std::filesystem::path> newest;  // verified byte by byte
  std::set<std::int64_t> damaged;               // newer steps, skipped with a warning each
};
[[nodiscard]] CheckpointScan scan_checkpoints(const std::filesystem::path& dir);

class CheckpointStore {
 public:
  // Creates `dir` (RUN/checkpoints) and removes half-written checkpoints of dead processes. keep >= 1: number of
  // complete checkpoints to keep. is_replaced (may be empty): true if another directory replaced the run directory.
  CheckpointStore(std::filesystem::path dir, int keep, std::function<bool()> is_replaced = {});

  // Writes or replaces step-N durably and returns its directory. Then removes checkpoints older than the `keep` newest
  // complete ones up to this step, except `proven`, and those set aside.
  std::filesystem::path save(std::int64_t step, const CheckpointContents& contents,
                             std::optional<std::int64_t> proven = {});
  // Keeps this checkpoint until another one is the best, and links DIR/best to it, if the step has a checkpoint.
  void keep_best(std::int64_t step);
  // True if a save recreated a missing run directory, which therefore belongs to this run.
  [[nodiscard]] bool has_made_dir() const { return has_made_dir_; }
  [[nodiscard]] std::vector<std::int64_t> steps() const;

  // Renames newer checkpoints to step-N.left, which scans ignore and the next save removes. Otherwise a later --resume
  // auto would take the newest of the old history.
  void set_aside_newer_than(std::int64_t step);

 private:
  void clean_up();
  void require_own_dir() const;
  void publish(const std::filesystem::path& temporary, const std::filesystem::path& final_dir) const;
  void apply_retention() const;
  void remove_set_aside() const;
  void remove(const std::filesystem::path& checkpoint) const;

  std::filesystem::path dir_;
  int keep_;
  std::function<bool()> is_replaced_;
  bool has_made_dir_ = false;
  std::optional<std::int64_t> saved_, proven_;
  std::optional<std::int64_t> best_;
};

}  // namespace sluice::storage
