// checkpoint_store: the checkpoints of one run, RUN/checkpoints/step-N. A checkpoint is there whole or not at all, at
// whatever instant the process or the machine dies; the newest is found by scanning and verifying, never by a pointer.
// Not here: the content of one checkpoint (checkpoint.h); when to save, who sends the state to the other ranks
// (train/). Threads: one at a time, one store per directory (the run directory's lock sees to that between processes).
// Errors: StorageError when a save cannot be written (nothing is left of it, older checkpoints are untouched, training
// may go on); DivergedError, likewise, when its tensors are not finite. A damaged checkpoint is passed over with a
// warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "storage/checkpoint.h"

namespace sluice::storage {

// What a scan found. Reads only, so `eval` may use it on any directory.
struct CheckpointScan {
  std::optional<std::filesystem::path> newest;  // verified byte by byte
  std::set<std::int64_t> damaged;               // newer steps that were skipped, each with a warning that says why
};
[[nodiscard]] CheckpointScan scan_checkpoints(const std::filesystem::path& dir);

class CheckpointStore {
 public:
  // dir is RUN/checkpoints, created when missing; keep >= 1 complete checkpoints remain after a save.
  // Removes what dead processes left half-written, with a log line each.
  // is_replaced: whether another directory is in the run's place, whose checkpoints are not ours to touch; may be
  // empty.
  CheckpointStore(std::filesystem::path dir, int keep, std::function<bool()> is_replaced = {});

  // Durable when it returns. Replaces step-N when it exists. Afterwards removes checkpoints older than the `keep`
  // newest complete ones up to this step (those of later steps are not touched), and those that were set aside. Returns
  // the directory. `proven` is a step that stays too, because this one's weights may be no good.
  std::filesystem::path save(std::int64_t step, const CheckpointContents& contents,
                             std::optional<std::int64_t> proven = {});
  // That checkpoint stays from now on, until another one is the best, and DIR/best is a link to it. Nothing where there
  // is none of that step. A link that cannot be made is a warning.
  void keep_best(std::int64_t step);
  // Whether the run's directory was gone when a checkpoint was saved, which made it anew: what is there is ours.
  [[nodiscard]] bool has_made_dir() const { return has_made_dir_; }
  // Steps for which there is a directory, newest first.
  [[nodiscard]] std::vector<std::int64_t> steps() const;

  // Who resumes from an older checkpoint on purpose begins another history: without this a later --resume auto would
  // take the newest of the old one. Newer checkpoints are renamed to step-N.left, which no scan sees and the next save
  // removes.
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
  std::optional<std::int64_t> saved_, proven_;  // what the last save was told
  std::optional<std::int64_t> best_;
};

}  // namespace sluice::storage
