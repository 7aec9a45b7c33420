// executor: runs a schedule on the stages of all local replicas, one thread per (replica, stage).
// Not here: which schedule (schedule/), the sum over replicas (comm/replica_sync.h), the optimizer (train/).
// Threads: its own workers; run() and for_each_place() from one thread. Activations pass between the stages of a
// replica by pointer on CPU devices and by peer copy on GPUs, one channel per (source, destination, kind). Errors: the
// first failure of any stage ends the step; it names replica, stage and action, the drawing of the schedule with the
// failing action marked goes to the log, and all workers are back before run() throws. A step that takes longer than
// the timeout: PeerError.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/replica_sync.h"
#include "core/recorder.h"
#include "nn/flops.h"
#include "nn/layer.h"
#include "pipeline/micro_batch.h"
#include "pipeline/schedule/action.h"
#include "pipeline/stage.h"
#include "pipeline/worker_pool.h"

namespace sluice::pipeline {

// The stages of all local replicas: [replica][stage].
using StageGrid = std::vector<std::vector<std::unique_ptr<Stage>>>;

struct ExecutorOptions {
  int cpu_threads = 1;  // per place
  std::chrono::milliseconds step_timeout{60000};
  bool record_spans = true;
};

// What a schedule asks for that the executor does not do: it runs F and whole B, one stage a device. Nothing: it runs
// it.
[[nodiscard]] std::optional<std::string> why_not_run(const Schedule& schedule);

// One pass of a schedule over one mini-batch (training) or evaluation batch (context.training false).
struct PassRequest {
  Schedule schedule;
  std::vector<std::vector<MicroBatch>> micro_batches;  // [replica][micro-batch]; the same number in each replica
  nn::ForwardContext context;                          // sample_ids come from the micro-batches
  LossFunction loss;
  double gradient_scale = 1.0;              // 1 / samples of the global batch
  std::shared_ptr<comm::ReplicaSync> sync;  // told of complete gradients; may be null
};

struct MicroBatchResult {
  at::Tensor loss;    // scalar, summed over the micro-batch; undefined when it is empty
  at::Tensor logits;  // [n, classes], on the last stage's device; undefined when it is empty
};
struct PassResult {
  std::vector<std::vector<MicroBatchResult>> micro_batches;  // [replica][micro-batch]
  nn::FlopCount flops{};                                     // of all stages and replicas, backward included
};

class Executor {
 public:
  // `devices`: [replica][stage].
  Executor(StageGrid grid, const std::vector<std::vector<device::Device>>& devices, ExecutorOptions options);
  ~Executor();

  [[nodiscard]] int replicas() const;
  [[nodiscard]] int stages() const;
  [[nodiscard]] Stage& stage(ReplicaId replica, StageId stage) const;

  // Requires: schedule.stages == stages(), and a schedule without why_not_run(). The gradients of a training pass are
  // added to zeroed ones. After it returns, results may be read by the calling thread.
  PassResult run(PassRequest request);

  // Work that the calling thread has queued on the devices by itself is over when it returns: workers have streams of
  // their own, which do not wait for the caller's.
  void wait_for_caller() const;

  // Runs `job` once for every place, in parallel, each in its own thread and on its own device. Spans recorded as
  // `phase`.
  // The job must own what it uses: a thread that hangs is abandoned with it.
  void for_each_place(Phase phase, const std::function<void(ReplicaId, StageId, Stage&)>& job);

  // One track per place, in the order [replica][stage].
  [[nodiscard]] Recorder& recorder();

 private:
  struct Grid;
  struct Pass;

  std::shared_ptr<Grid> grid_;
  std::chrono::milliseconds timeout_;
  WorkerPool pool_;
};

}  // namespace sluice::pipeline
