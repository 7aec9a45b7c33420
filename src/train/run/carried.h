// carried: what a process of an elastic run (replicas.elastic) carries in memory into the next group, and how rank 0 of
// that group goes on in the run directory. Threads: one. Errors: those of storage/run_dir.h and checkpoint_store.h.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "report/reporter.h"
#include "storage/checkpoint_store.h"
#include "storage/run_dir.h"
#include "train/run/records.h"
#include "train/run/resume_point.h"
#include "train/run/train_run.h"
#include "train/run/training.h"

namespace sluice::train {

struct Carried {
  std::optional<storage::RunDir> run_dir;  // of rank 0, open and locked
  std::optional<KeptState> state;          // null unless the group before ended with a whole state
  RunDirId run_dir_id;                     // of rank 0 of the group before
  LastRecords last;
  std::vector<LayerCost> costs;  // RunPlans::costs
  comm::GroupNews news;          // not in the records yet
};

// The point at which training and the records go on. Takes the run directory over if another process has led before.
[[nodiscard]] ResumePoint begin_in_group(const TrainRunOptions& options, Carried& carried);

// Writes the records of the last step that rank 0 of the group before had no time to write.
void catch_up(const storage::RunDir& run_dir, const Carried& carried, report::Reporter& reporter);

// The loop goes on behind the checkpoints and digests of the run directory.
void go_on_in(const storage::RunDir& run_dir, const storage::CheckpointStore& checkpoints, std::int64_t steps_done,
              LoopOptions& options);

// Forms the next group. PeerError if fewer processes than replicas.min are left, once rank 0 has saved the state.
void form_next_group(Peers& peers, const Setup& setup, const TrainRunOptions& options, Carried& carried);

}  // namespace sluice::train
