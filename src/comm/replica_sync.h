// replica_sync: the interface by which a training step keeps the replicas of a model in step: by all-reduce
// (ddp/reducer.h), a parameter server (ps/worker_sync.h) or not at all (no_sync.h). A new frozen prefix or partition
// needs a new object. If the pass of a step fails, the next begin_step() discards the step.
// Threads: admits(), on_grad_ready() and on_backward_done() may be called from any thread. All other calls come from
// one thread, between passes, in the same order in every process.
// Errors: PeerError if another process is lost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "core/parts.h"
#include "core/recorder.h"
#include "device/device.h"

namespace sluice::comm {

// Position of a parameter in the flat tensors of its stage, in elements.
struct Extent {
  ParamId param;
  std::int64_t begin;
  std::int64_t end;
  std::string name;
  std::string tied_to;  // name of the parameter that this one is a copy of, possibly in another stage (nn/layer.h)
  std::vector<std::int64_t> sizes = {};
  std::vector<std::int64_t> strides = {};
};

// Numbers that layers write while they run: the running mean or variance of a batch-norm.
struct RunningStatistic {
  std::string name;
  std::vector<at::Tensor> values;  // [replica]: 1-d
};

struct SyncedStage {
  StageId stage;
  std::vector<Extent> extents;          // trained parameters, in the order of the flat tensors
  std::vector<at::Tensor> values;       // [replica]: 1-d; the same tensor for replicas in the same memory
  std::vector<at::Tensor> gradients;    // [replica]: 1-d; the layout of the trained part of the values
  std::vector<device::Device> devices;  // [replica]
  std::vector<RunningStatistic> statistics = {};
  // [replica][node]: with StepStart::micro_batches, the sums of the nodes of its micro-batches; [replica][0] is
  // gradients[replica]. The stages change the lists before their first gradient of a step.
  std::vector<std::shared_ptr<const std::vector<at::Tensor>>> nodes = {};
};

struct StepStart {
  std::int64_t step = 0;      // number of the optimizer step, from 0; continues over resumes and changes of plan
  double lr = 0;              // learning rate of the step's update; 0 in a trial
  bool is_trial = false;      // only times are measured; the gradients are not used
  double gradient_scale = 1;  // factor by which the gradients of the summed loss are multiplied
  bool takes_norms = false;   // norms of each replica's own gradient before summing; the same in all processes
  // Micro-batches of the step over all processes, if their gradients and losses are summed in the order of
  // core/sum_tree.h; 0: the order may depend on who ran them.
  std::int64_t micro_batches = 0;
  Parts parts = 1;  // with micro_batches: one part for each replica of all processes
};

struct ReplicaShare {
  std::int64_t samples = 0;
  std::int64_t targets = 0;
};

// Sums for the gradient noise scale, over replicas that have run n samples with t targets. s is a replica's own
// gradient, summed over its targets, times StepStart::gradient_scale.
struct ReplicaNorms {
  std::int64_t replicas = 0;
  double squares = 0;    // sum of |s|^2 / t
  double per_small = 0;  // sum of t / n
  double per_big = 0;    // sum of t^2 / n
};

// The local replicas' part of a step, counted from the micro-batches that have run.
struct Contribution {
  std::int64_t samples = 0;
  std::int64_t targets = 0;         // targets that count: one per sample, or the tokens of texts
  double loss_sum = 0;              // sum over the targets, not their mean
  std::vector<double> scores = {};  // ScoreSums::sums: equally many in every process
  int stop_votes = 0;               // number of processes that want the run to stop after this step
  int regroup_votes = 0;            // ... that want to form a new group after it (replicas.elastic)
  int event_votes = 0;              // ... that have events for rank 0 after it
  std::int64_t batch = 0;           // index of the batch, counted from the beginning of the first epoch; not summed
  // [local replica], empty without StepStart::takes_norms; not summed.
  std::vector<ReplicaShare> of_replicas = {};
  // [micro-batch of this process]: loss and scores, with StepStart::micro_batches; not summed.
  std::vector<std::vector<double>> of_micro_batches = {};
};

// Which component changes the weights after a step; the same in all processes.
enum class Update {
  kLocal,      // the caller's optimizer, on the gradients of replica 0
  kElsewhere,  // the sync's optimizer, with its own clipping; it also adds up the gradients of tied copies
  kSkipped,    // none: the gradients of the step are dropped
};

struct StepOutcome {
  Update update = Update::kLocal;
  bool weights_replaced = false;      // replica 0's values were written, except copies of tied parameters
  double divisor = 1.0;               // the caller still has to divide the gradients by this
  bool same_gradients = true;         // in all processes; if so, all clip with the same norm
  Contribution total;                 // sum over all replicas
  std::vector<std::int64_t> batches;  // [process]: Contribution::batch; empty with one process
  std::vector<BucketSpan> buckets;    // sums over the processes in this step, if times are recorded
  LateProcess late;
  ReplicaNorms norms;          // over all replicas, with StepStart::takes_norms, if the sync sums gradients
  Nanoseconds norms_time = 0;  // time for the local norms, on the device that took longest
};

class ReplicaSync {
 public:
  virtual ~ReplicaSync() = default;

  // Called before any forward of the step. Returns whether weights were written into replica 0's values, by work queued
  // on the calling thread's current streams.
  [[nodiscard]] virtual bool begin_step(const StepStart& start) = 0;

  // Whether a replica may run one more micro-batch. Called once per micro-batch, before its first stage's forward. A
  // rejected micro-batch passes through the pipeline without computation.
  [[nodiscard]] virtual bool admits(ReplicaId /*replica*/, MicroBatchId /*micro_batch*/) { return true; }

  // The gradient is complete once the calling thread's current stream is. Called at most once per step.
  virtual void on_grad_ready(ReplicaId replica, ParamId param) = 0;

  // The stage has run its last backward. Unreported parameters get no further gradient.
  virtual void on_backward_done(ReplicaId replica, StageId stage) = 0;

  // Called after all stages. With Update::kLocal it leaves the sum over all replicas in replica 0's gradients.
  [[nodiscard]] virtual StepOutcome finish_step(const Contribution& local) = 0;

  // Whether finish_step() reads SyncedStage::statistics. The caller then merges the local replicas' first.
  [[nodiscard]] virtual bool takes_statistics() const { return false; }

  // Whether finish_step() may return kSkipped. The caller then keeps the running statistics of a step until it returns.
  [[nodiscard]] virtual bool may_skip() const { return false; }

  // Called after the caller has run its optimizer (Update::kLocal). Returns as begin_step().
  [[nodiscard]] virtual bool on_updated() { return false; }

  // Number of synchronized processes, and the rank of this one among them.
  [[nodiscard]] virtual int processes() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  // In place on CPU tensors: the sum over the processes, with the same bits in each; rank 0's numbers in all.
  virtual void sum(const at::Tensor& numbers) = 0;
  virtual void take_rank_0s(const at::Tensor& numbers) = 0;
};

}  // namespace sluice::comm
