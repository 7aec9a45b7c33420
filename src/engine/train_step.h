// train_step: the one training step of every mode: run the schedule, agree with the other replicas, update the weights.
// A single device is one stage with nobody to agree with; a new mode is a new schedule or a new ReplicaSync, not a new
// step. Threads: one. Errors: DivergedError, or DataError where samples are to blame (divergence.h), before the weights
// are touched when the loss is NaN or infinite; those of the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/compose.h"
#include "engine/gradient_sums.h"
#include "engine/step_graphs.h"
#include "nn/layer.h"
#include "nn/loss.h"
#include "pipeline/failure.h"
#include "pipeline/micro_batch.h"

namespace sluice::engine {

struct TrainStepOptions {
  std::uint64_t seed = 0;
  nn::Numerics numerics = {};
  double clip_norm = 0;         // gradients are scaled to at most this norm over all parameters; 0: as they are
  bool sums_gradients = false;  // for take_gradient_norms(); takes memory
  // Evaluations run in passes of no more than a device has room for in training: a training micro-batch for each
  // device.
  bool memory_is_limited = false;
  // What to do where a device has too little memory for a training pass, as the end of a sentence.
  std::string less_memory{pipeline::kLessTrainingMemory};
  // What else to say of a training pass of this plan that a device had no memory for; may be empty.
  std::function<Error(const Error&, const Plan&)> explain_memory;
  // Training passes run as recorded work where they are alike (step_graphs.h); null: none does. Requires: running
  // statistics take in every micro-batch, and the sync admits all of them.
  device::GraphFactory make_graphs = nullptr;
};

// This process's share of a step's samples: those of its local replicas.
struct StepBatch {
  pipeline::MicroBatch local;
  std::int64_t global_samples = 0;  // over all processes
  std::int64_t number = 0;          // in the data, from the beginning of the first epoch; the same in all processes

  StepBatch(pipeline::MicroBatch all)  // NOLINT(google-explicit-constructor): one process has them all
      : local(std::move(all)), global_samples(local.samples()) {}
  StepBatch(pipeline::MicroBatch share, std::int64_t global, std::int64_t batch_number = 0)
      : local(std::move(share)), global_samples(global), number(batch_number) {}
};

// What a step is asked for besides its update.
struct StepRequest {
  bool count_correct = false;  // the same in every process
  bool keep_logits = false;
  bool stop = false;        // this process wants the run to stop after the step
  bool take_norms = false;  // for the gradient noise scale (noise_norms.h); the same in every process
  bool is_trial = false;    // no update follows; a failure is not explained: where in the schedule, what would fit
  double lr = 0;            // of the update that follows; run() fills it in
  // Called once before the first weight is changed; until then parameters and optimizer are those of the step before.
  // null: not called.
  std::function<void()> before_update = nullptr;
};

struct EvalStats {
  EvalCounts counts;
  bool stop = false;
};

class TrainStep {
 public:
  TrainStep(Composition& composition, TrainStepOptions options)
      : composition_(composition), options_(std::move(options)) {
    if (options_.sums_gradients) sums_.emplace(composition_);
    if (options_.make_graphs) graphs_.emplace(options_.make_graphs);
  }

  // True when there is no other process to agree with.
  [[nodiscard]] bool is_alone() const { return composition_.processes() == 1; }

  // `step`: number of the optimizer step, from 0. Every process runs the same steps.
  StepStats run(const StepBatch& batch, std::int64_t step, double lr, StepRequest wanted = {});

  // Its first half alone: forward and backward in `chunks` micro-batches. The gradients are left in replica 0, still to
  // be divided by `divisor`; running statistics take the batch in; weights stay as they are, unless the sync replaces
  // them.
  struct Gradients {
    StepStats stats;
    at::Tensor logits;  // of this process: [n, classes] on the CPU, in the order of the batch; when kept
    double divisor = 1;
    comm::Update update = comm::Update::kLocal;  // what the sync says of them
    bool weights_replaced = false;               // by the sync, in replica 0
    bool same_in_all_processes = true;
  };
  Gradients compute_gradients(const StepBatch& batch, std::int64_t step, int chunks, const StepRequest& wanted = {});
  // Its second half: refuses a loss that is not finite and says what is behind it (divergence.h), scales a long
  // gradient down, updates the weights, and completes the stats. `batch` is that of the gradients.
  StepStats apply(const Gradients& gradients, const StepBatch& batch, std::int64_t step, double lr,
                  const std::function<void()>& before_update = nullptr);
  // The update alone, with gradients of any length.
  void update_weights(double lr, double divisor);

  // [layer of the model]: the L1 norm of the gradients that all steps with an update of ours (comm::Update::kLocal)
  // have added up since the norms were taken last (gradient_sums.h), each of its mean loss. As they are before they are
  // clipped: clipping scales all layers of a step alike but every step by another factor, so it would weigh the steps
  // of an interval by how long their gradients are. Where a sync leaves each process gradients of its own, of these.
  // Requires: options.sums_gradients.
  [[nodiscard]] std::vector<double> take_gradient_norms();

  // Whether an average of the weights is kept (optim::OptimizerOptions::ema_decay).
  [[nodiscard]] bool has_average() const { return composition_.optimizers.front()->average().defined(); }
  // Calls evaluate() with the average in the place of the weights; buffers stay as they are. Requires: has_average().
  void with_average(const std::function<void()>& evaluate);

  // Loss and correct predictions over one batch; `logits`, when not null, receives this process's, in order, on the
  // CPU. Every process evaluates its share of the same batches.
  EvalStats evaluate(const pipeline::MicroBatch& batch, bool stop = false, at::Tensor* logits = nullptr);

 private:
  [[nodiscard]] int evaluation_passes(std::int64_t samples) const;
  [[nodiscard]] pipeline::PassRequest request_for(const pipeline::MicroBatch& batch, pipeline::Schedule schedule,
                                                  int chunks) const;
  [[nodiscard]] const pipeline::Schedule& schedule_of(int chunks);  // made and validated once
  [[nodiscard]] pipeline::PassResult run_training_pass(pipeline::PassRequest request, int chunks);
  struct Contributed;
  // Gradients are still being added up when the pass is over.
  [[nodiscard]] bool sums_outlast_pass() const;
  // Forward and backward alone.
  Contributed contribute(const StepBatch& batch, std::int64_t step, int chunks, double gradient_scale,
                         const StepRequest& wanted);
  [[nodiscard]] std::vector<std::vector<optim::BufferPart>> plan_update() const;  // [replica][stage]
  void exchange_average();
  // Replica 0's weights into the copies of tied parameters and the replicas that have weights of their own.
  void spread_weights();
  // The same for weights that the sync has written.
  void take_weights();
  // Of the gradients of all parameters, tied ones once, divided by `divisor`; the same bits in every process.
  [[nodiscard]] double gradient_norm(double divisor, bool same_in_all_processes) const;
  [[nodiscard]] double of_rank_0(double number) const;
  [[nodiscard]] EvalStats over_processes(const EvalStats& local) const;

  Composition& composition_;
  TrainStepOptions options_;
  std::optional<GradientSums> sums_;
  std::optional<StepGraphs> graphs_;
  std::map<int, pipeline::Schedule> schedules_;  // by chunks
};

}  // namespace sluice::engine
