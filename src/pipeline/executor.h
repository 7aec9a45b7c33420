// executor: runs a schedule on the stages of all local replicas, one thread per (replica, device).
// Not here: which schedule (schedule/), the sum over replicas (comm/replica_sync.h), the optimizer (train/).
// Threads: a device thread for each slot; run() and for_each_stage() from one thread. Activations and gradients pass
// between the stages of a replica by pointer on CPU devices and by peer copy on GPUs. The parts of an overlapped pair
// run one after the other. Errors: the first failure of any stage ends the step; it names replica, stage and action,
// the drawing of the schedule with the failing action marked goes to the log, and all device threads are back before
// run() throws, or abandoned. A step that takes longer than the timeout: PeerError. The time in which all of it waits
// for other processes (synchronised batch-norm) does not count: another may save a checkpoint or wait for its data, and
// has a limit of its own where it hangs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "core/recorder.h"
#include "pipeline/device_threads.h"
#include "pipeline/grid.h"
#include "pipeline/pass_request.h"
#include "pipeline/time_limit.h"

namespace sluice::pipeline {

struct ExecutorOptions {
  int cpu_threads = 1;                        // per slot
  std::chrono::milliseconds step_timeout{0};  // of a pass; 0: by the passes before it (time_limit.h)
  bool record_spans = true;
  // What outlives this executor, for others that follow it; null: its own. One executor uses them at a time.
  std::shared_ptr<DeviceThreads> threads = nullptr;
  std::shared_ptr<Recorder> recorder = nullptr;
  std::shared_ptr<PassLimits> limits = nullptr;  // its own are those of step_timeout
};

class Executor {
 public:
  // `devices`: [replica][device]. `owners`: [stage], the device of its replica that runs it (stage_owners()).
  Executor(StageGrid grid, const std::vector<std::vector<device::Device>>& devices, const std::vector<int>& owners,
           ExecutorOptions options, PrefixGrid prefixes = {});
  ~Executor();

  [[nodiscard]] int replicas() const { return grid_->replicas(); }
  [[nodiscard]] int stages() const { return grid_->stages_per_replica(); }
  [[nodiscard]] int devices() const { return grid_->devices(); }  // of a replica
  [[nodiscard]] const std::vector<int>& owners() const { return grid_->owners; }
  [[nodiscard]] Stage& stage(ReplicaId replica, StageId stage) const { return grid_->stage(replica, stage); }

  // Each copy of the frozen layers once; empty where nothing is frozen.
  [[nodiscard]] std::vector<std::shared_ptr<FrozenPrefix>> prefixes() const;

  // Requires: a validated schedule whose stages are owned as the executor's are. A training pass forgets
  // the gradients of the one before. After it returns, results may be read by the calling thread.
  PassResult run(PassRequest request);
  // For passes that are alike (PassRequest::graphs). They live no longer than the executor.
  [[nodiscard]] std::shared_ptr<PassGraphs> make_graphs(const device::GraphFactory& make) const;
  // True after a failure that a slot did not come back from in time: no further run is possible.
  [[nodiscard]] bool has_abandoned_threads() const { return pool_->has_abandoned_threads(); }

  // How long the next training pass may take before it counts as hung.
  [[nodiscard]] std::chrono::milliseconds training_limit() const { return limits_->training.current(); }

  // Work that the calling thread has queued on the devices by itself is over when it returns: device threads have
  // streams of their own, which do not wait for the caller's.
  void wait_for_caller() const;

  // Runs `job` once for every stage, in the thread and on the device that run it. Spans recorded as `phase`.
  // The job must own what it uses: a thread that hangs is abandoned with it.
  void for_each_stage(Phase phase, const std::function<void(ReplicaId, StageId, Stage&)>& job);

  // One track per slot, in the order [replica][device].
  [[nodiscard]] Recorder& recorder() { return *grid_->recorder; }

 private:
  std::shared_ptr<Grid> grid_;
  std::shared_ptr<PassLimits> limits_;
  std::shared_ptr<DeviceThreads> pool_;
};

}  // namespace sluice::pipeline
