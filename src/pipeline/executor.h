// executor: runs a schedule on the stages of all local replicas, one thread per slot (replica, device). The stages of a
// replica pass activations and gradients by pointer on CPU devices and by peer copy on GPUs. The parts of an overlapped
// pair run one after the other.
// Threads: call run() and for_each_stage() from one thread.
// Errors: the first failure of any stage ends the step, names replica, stage and action, and logs the schedule with the
// failing action marked. A step that exceeds the timeout throws PeerError. Time in which the whole pass waits for other
// processes does not count: another process may save a checkpoint, and has its own limit for hangs.
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
  int cpu_threads = 1;  // per slot
  // Timeout of a pass; 0: derived from earlier passes (time_limit.h).
  std::chrono::milliseconds step_timeout{0};
  bool record_spans = true;
  // Reused by the next executor; null: the executor creates its own. Only one executor may use them at a time.
  std::shared_ptr<DeviceThreads> threads = nullptr;
  std::shared_ptr<Recorder> recorder = nullptr;
  std::shared_ptr<PassLimits> limits = nullptr;  // null: limits from step_timeout
};

class Executor {
 public:
  // `devices`: [replica][device]. `owners`: [stage], the device of its replica that runs it (stage_owners()).
  Executor(StageGrid grid, const std::vector<std::vector<device::Device>>& devices, const std::vector<int>& owners,
           ExecutorOptions options, PrefixGrid prefixes = {});
  ~Executor();

  [[nodiscard]] int replicas() const { return grid_->replicas(); }
  [[nodiscard]] int stages() const { return grid_->stages_per_replica(); }
  [[nodiscard]] int devices() const { return grid_->devices(); }  // per replica
  [[nodiscard]] const std::vector<int>& owners() const { return grid_->owners; }
  [[nodiscard]] Stage& stage(ReplicaId replica, StageId stage) const { return grid_->stage(replica, stage); }

  // One entry for each copy of the frozen layers; empty if no layer is frozen.
  [[nodiscard]] std::vector<std::shared_ptr<FrozenPrefix>> prefixes() const;

  // Requires: a validated schedule with the executor's stage owners. A training pass discards the gradients of the
  // previous one. The calling thread may read the results after run() returns.
  PassResult run(PassRequest request);
  // Makes graphs for passes that are alike (PassRequest::graphs). The executor must outlive them.
  [[nodiscard]] std::shared_ptr<PassGraphs> make_graphs(const device::GraphFactory& make) const;
  [[nodiscard]] bool has_abandoned_threads() const { return pool_->has_abandoned_threads(); }

  [[nodiscard]] std::chrono::milliseconds training_limit() const { return limits_->training.current(); }

  // Waits for what the calling thread has queued on the devices: device threads have their own streams.
  void wait_for_caller() const;

  // Runs `job` once for every stage, on the stage's thread and device, and records spans as `phase`. The job must own
  // what it uses, because a thread that hangs is abandoned together with the job.
  void for_each_stage(Phase phase, const std::function<void(ReplicaId, StageId, Stage&)>& job);

  [[nodiscard]] Recorder& recorder() { return *grid_->recorder; }

 private:
  std::shared_ptr<Grid> grid_;
  std::shared_ptr<PassLimits> limits_;
  std::shared_ptr<DeviceThreads> pool_;
};

}  // namespace sluice::pipeline
