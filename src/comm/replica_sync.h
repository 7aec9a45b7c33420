// replica_sync: the contract by which replicas of a model are kept in step. A training step knows only this interface;
// all-reduce (ddp/reducer.h), a parameter server or nothing at all stand behind it.
// A sync is made for the stages of one composition: a new frozen prefix or a new cut means a new object.
// Every process of a run makes the same calls in the same order, but for admits(), on_grad_ready() and
// on_backward_done(), which come from any thread; all else comes from one, between passes.
// A step whose pass fails ends without finish_step(); the next begin_step() forgets it.
// Errors: PeerError when another process is lost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "core/recorder.h"
#include "device/device.h"

namespace sluice::comm {

// Where a parameter lies in the flat tensors of its stage, in elements.
struct Extent {
  ParamId param;
  std::int64_t begin;
  std::int64_t end;
  std::string name;
  std::string tied_to;  // it is a copy of the parameter of this name, maybe in another stage (nn/layer.h)
  // How its elements lie there.
  std::vector<std::int64_t> sizes = {};
  std::vector<std::int64_t> strides = {};
};

// Numbers that layers write themselves while they run: the running mean or variance of a batch-norm.
struct RunningStatistic {
  std::string name;
  std::vector<at::Tensor> values;  // [replica]: 1-d
};

// A stage as a sync sees it.
struct SyncedStage {
  StageId stage;
  std::vector<Extent> extents;          // of the parameters that are trained, in the order of the flat tensors
  std::vector<at::Tensor> values;       // [replica]: 1-d; the same tensor for replicas in the same memory
  std::vector<at::Tensor> gradients;    // [replica]: 1-d, with the layout of the values as far as they are trained
  std::vector<device::Device> devices;  // [replica]
  // For ReplicaSync::takes_statistics().
  std::vector<RunningStatistic> statistics = {};
};

// What begins.
struct StepStart {
  std::int64_t step = 0;      // number of the optimizer step, from 0; counts on over resumes and changes of plan
  double lr = 0;              // of its update; 0 in a trial
  bool is_trial = false;      // its gradients are not used: nothing may come of it but times
  double gradient_scale = 1;  // its gradients will be those of the summed loss times this
  bool takes_norms = false;   // of each replica's own gradient, before they are summed; the same in all processes
};

// What a replica has run of a step.
struct ReplicaShare {
  std::int64_t samples = 0;
  std::int64_t targets = 0;
};

// Of the replicas that have run n samples, with t targets, and have a gradient s of their own (summed over the targets,
// times StepStart::gradient_scale): what adds up over replicas and processes to the gradient noise scale.
struct ReplicaNorms {
  std::int64_t replicas = 0;
  double squares = 0;    // sum of |s|^2 / t
  double per_small = 0;  // sum of t / n
  double per_big = 0;    // sum of t^2 / n
};

// What the local replicas put into a step, counted from the micro-batches that have run.
struct Contribution {
  std::int64_t samples = 0;
  std::int64_t targets = 0;  // that count: one a sample, or of texts the tokens
  double loss_sum = 0;       // summed, not averaged, over the targets
  std::int64_t top1 = 0;     // targets predicted right, and among the five likeliest; 0 where nobody counts them
  std::int64_t top5 = 0;
  int stop_votes = 0;      // processes that want the run to stop after this step
  std::int64_t batch = 0;  // number of the batch in the data, from the beginning of the first epoch; not added up
  // [local replica], with StepStart::takes_norms, else empty; not added up.
  std::vector<ReplicaShare> of_replicas = {};
};

// Who changes the weights after a step; the same in all processes.
enum class Update {
  kLocal,      // the caller runs its optimizer on the gradients of replica 0
  kElsewhere,  // an optimizer of the sync's own, with its own clipping; it adds up the gradients of tied copies, too
  kSkipped,    // nobody: the step's gradients are dropped
};

struct StepOutcome {
  Update update = Update::kLocal;
  bool weights_replaced = false;      // replica 0's values have been written, but for copies of tied parameters
  double divisor = 1.0;               // gradients still have to be divided by this
  bool same_gradients = true;         // in all processes: then they share one norm when they clip
  Contribution total;                 // of all replicas
  std::vector<std::int64_t> batches;  // Contribution::batch of each process, where there are others
  std::vector<BucketSpan> buckets;    // sums over the processes of the run, in this step, where times are recorded
  LateProcess late;
  ReplicaNorms norms;          // of all replicas, with StepStart::takes_norms, where the sync adds gradients up
  Nanoseconds norms_time = 0;  // what they took here: of the device that worked longest on them
};

class ReplicaSync {
 public:
  virtual ~ReplicaSync() = default;

  // Before any forward of the step. True when weights have been written into replica 0's values (weights_replaced), by
  // work queued on the calling thread's current streams.
  [[nodiscard]] virtual bool begin_step(const StepStart& start) = 0;

  // Whether a replica may run one more micro-batch of this step; asked once for each, when its first stage is about to
  // run it forward. One that is not admitted passes through the pipeline as nothing.
  [[nodiscard]] virtual bool admits(ReplicaId /*replica*/, MicroBatchId /*micro_batch*/) { return true; }

  // The gradient of `param` in `replica` has its last micro-batch's share. At most once per step. The work that wrote
  // the gradient is queued on the calling thread's current stream.
  virtual void on_grad_ready(ReplicaId replica, ParamId param) = 0;

  // The stage has run its last backward: its parameters not reported until now have no further share to come
  // (unused in this step, or the replica had no samples).
  virtual void on_backward_done(ReplicaId replica, StageId stage) = 0;

  // After all stages are done. With Update::kLocal every gradient of replica 0 is the sum over all replicas when it
  // returns.
  [[nodiscard]] virtual StepOutcome finish_step(const Contribution& local) = 0;

  // Whether finish_step() reads SyncedStage::statistics: then those of the replicas here have been merged before.
  [[nodiscard]] virtual bool takes_statistics() const { return false; }

  // Whether finish_step() may answer kSkipped: then the running statistics of every step are kept until it has.
  [[nodiscard]] virtual bool may_skip() const { return false; }

  // After the caller has run its optimizer (Update::kLocal). True as in begin_step().
  [[nodiscard]] virtual bool on_updated() { return false; }

  // The processes that are kept in step, and which of them this one is.
  [[nodiscard]] virtual int processes() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  // Of tensors on the CPU, in place: their sum over the processes, the same bits in each; those of rank 0 in all.
  virtual void sum(const at::Tensor& numbers) = 0;
  virtual void take_rank_0s(const at::Tensor& numbers) = 0;
};

}  // namespace sluice::comm
