// replica_sync: the contract by which replicas of a model are kept in step. A training step knows only this interface;
// all-reduce (ddp/reducer.h), a parameter server or nothing at all stand behind it.
// The set of live parameters is fixed at construction: a new frozen prefix or a new cut means a new object.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/recorder.h"

namespace sluice::comm {

// What the local replicas put into a step.
struct Contribution {
  std::int64_t targets = 0;  // that count: one a sample, or of texts the tokens
  double loss_sum = 0;       // summed, not averaged, over the targets
  std::int64_t top1 = 0;     // targets predicted right, and among the five likeliest; 0 where nobody counts them
  std::int64_t top5 = 0;
  int stop_votes = 0;      // processes that want the run to stop after this step
  std::int64_t batch = 0;  // number of the batch in the data, from the beginning of the first epoch; not added up
};

struct StepOutcome {
  bool run_local_optimizer = true;    // false: the optimizer runs elsewhere
  bool weights_replaced = false;      // new weights have been installed
  double divisor = 1.0;               // gradients still have to be divided by this
  Contribution total;                 // of all replicas
  std::vector<std::int64_t> batches;  // Contribution::batch of each process, where there are others
  std::vector<BucketSpan> buckets;    // sums over the processes of the run, in this step, where times are recorded
  LateProcess late;
};

class ReplicaSync {
 public:
  virtual ~ReplicaSync() = default;

  // Before any backward of the step. One thread.
  virtual void begin_step() = 0;

  // The gradient of `param` in `replica` has its last micro-batch's share. At most once per step. Any thread; the work
  // that wrote the gradient is queued on the calling thread's current stream.
  virtual void on_grad_ready(ReplicaId replica, ParamId param) = 0;

  // The stage has run its last backward: its parameters not reported until now have no further share to come
  // (unused in this step, or the replica had no samples).
  virtual void on_backward_done(ReplicaId replica, StageId stage) = 0;

  // Blocks until every gradient of replica 0 is the sum over all replicas. One thread, after all stages are done.
  [[nodiscard]] virtual StepOutcome finish_step(const Contribution& local) = 0;
};

}  // namespace sluice::comm
