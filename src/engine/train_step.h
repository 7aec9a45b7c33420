// train_step: the training step of every mode: runs the schedule, synchronises with the other replicas, updates the
// weights. A new mode is a new schedule or a new ReplicaSync, not a new step.
// Threads: one. Errors: those of the executor; DivergedError or DataError (divergence.h) before the weights change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/step_stats.h"
#include "engine/compose.h"
#include "engine/gradient_sums.h"
#include "engine/layer_digests.h"
#include "engine/pass_sums.h"
#include "engine/step_graphs.h"
#include "nn/layer.h"
#include "pipeline/failure.h"
#include "pipeline/micro_batch.h"
#include "task/task.h"

namespace sluice::engine {

struct TrainStepOptions {
  task::TaskPtr task = task::make_classification();
  std::uint64_t seed = 0;
  nn::Numerics numerics = {};
  // Gradients are scaled to at most this norm over all parameters; 0: no clipping.
  double clip_norm = 0;
  // Samples of a micro-batch; the last of a batch may be short. 0: a replica's share is cut into Plan::chunks equal
  // micro-batches. If set, results do not depend on who runs which micro-batch: replicas and processes take consecutive
  // parts (core/parts.h), and sums follow the order of micro-batches.
  // Requires: the sync sums gradients in a tree (comm::StepStart::micro_batches), running statistics are not kSync, no
  // norms are taken and no graphs recorded.
  std::int64_t micro_batch = 0;
  // With micro_batch: the field whose zeros are padding, which is cut off from micro-batches. Empty: none is cut off.
  std::string padding_mask;
  bool rounds_to_bf16 = false;  // with micro_batch: rounds each gradient and each sum to bfloat16
  bool sums_gradients = false;  // for take_gradient_norms(); takes memory
  // Limits an evaluation pass to the memory of training: one training micro-batch for each device.
  bool memory_is_limited = false;
  std::string less_memory{pipeline::kLessTrainingMemory};
  // Adds to an out-of-memory error of a training pass of this plan; may be empty.
  std::function<Error(const Error&, const Plan&)> explain_memory;
  // Records training passes that are alike (step_graphs.h); null: no recording. Requires: running statistics take in
  // every micro-batch, and the sync admits all of them.
  device::GraphFactory make_graphs = nullptr;
};

// This process's share of a step's samples: those of its local replicas.
struct StepBatch {
  pipeline::MicroBatch local;
  std::int64_t global_samples = 0;  // over all processes
  std::int64_t number = 0;
  std::int64_t first = 0;  // position of the first sample in the global batch

  StepBatch(pipeline::MicroBatch all)  // NOLINT(google-explicit-constructor): one process has them all
      : local(std::move(all)), global_samples(local.samples()) {}
  StepBatch(pipeline::MicroBatch share, std::int64_t global, std::int64_t batch_number = 0,
            std::int64_t first_sample = 0)
      : local(std::move(share)), global_samples(global), number(batch_number), first(first_sample) {}
};

struct StepRequest {
  bool counts_scores = false;  // the same in every process
  bool keep_logits = false;
  bool stop = false;           // this process wants the run to stop after the step
  bool regroup = false;        // this process wants a new group of processes after the step
  bool has_events = false;     // an observer of this process has events for rank 0
  bool takes_digests = false;  // for last_digests(); requires options.micro_batch; the same in every process
  bool take_norms = false;     // for the gradient noise scale (noise_norms.h); the same in every process
  bool is_trial = false;       // no update follows, and a failure is not explained
  double lr = 0;               // of the following update; set by run()
  // Called once before the first weight changes; may be null.
  std::function<void()> before_update = nullptr;
};

struct EvalStats {
  ScoreSums scores;
  bool stop = false;
};

class TrainStep {
 public:
  TrainStep(Composition& composition, TrainStepOptions options)
      : composition_(composition), options_(std::move(options)) {
    if (options_.sums_gradients) sums_.emplace(composition_);
    if (options_.make_graphs) graphs_.emplace(options_.make_graphs);
  }

  [[nodiscard]] const task::Task& task() const { return *options_.task; }
  [[nodiscard]] bool is_alone() const { return composition_.processes() == 1; }

  // `step`: number of the optimizer step, from 0. Every process runs the same steps.
  StepStats run(const StepBatch& batch, std::int64_t step, double lr, StepRequest wanted = {});

  // The first half of run(): forward and backward in `chunks` micro-batches. Replica 0 keeps the gradients, still to be
  // divided by `divisor`. Running statistics take the batch in. Weights do not change, unless the sync replaces them.
  struct Gradients {
    StepStats stats;
    // The first output of the model for this process's samples, if kept: on the CPU, in the order of the batch.
    at::Tensor logits;
    double divisor = 1;
    comm::Update update = comm::Update::kLocal;  // the sync's decision
    bool weights_replaced = false;               // by the sync, in replica 0
    bool same_in_all_processes = true;
  };
  Gradients compute_gradients(const StepBatch& batch, std::int64_t step, int chunks, const StepRequest& wanted = {});
  // The second half of run(): checks that the loss is finite (divergence.h), clips, updates the weights and completes
  // the stats. `batch` is the batch of the gradients.
  StepStats apply(const Gradients& gradients, const StepBatch& batch, std::int64_t step, double lr,
                  const std::function<void()>& before_update = nullptr);
  void update_weights(double lr, double divisor);

  // Requires: the last step took digests, and the weights have not changed since.
  [[nodiscard]] StepDigests last_digests() const { return digests_->finish(); }

  // [layer of the model]: the L1 norm of the summed gradients since the last call (gradient_sums.h), of steps with a
  // local update. Summed before clipping, which would weight the steps by their gradients' length. If a sync leaves
  // each process its own gradients, the norms are of those. Requires: options.sums_gradients.
  [[nodiscard]] std::vector<double> take_gradient_norms();

  [[nodiscard]] bool has_average() const { return composition_.optimizers.front()->average().defined(); }
  // Calls evaluate() with the average in place of the weights; buffers do not change. Requires: has_average().
  void with_average(const std::function<void()>& evaluate);

  // `logits`, if not null, receives this process's logits in order, on the CPU. Every process evaluates its share.
  EvalStats evaluate(const StepBatch& batch, bool stop = false, at::Tensor* logits = nullptr);

 private:
  [[nodiscard]] int evaluation_passes(std::int64_t samples) const;
  [[nodiscard]] pipeline::PassRequest request_for(MicroBatches micro_batches, pipeline::Schedule schedule) const;
  // [replica][micro-batch], equally many for each replica: `chunks`, or more if options.micro_batch or the plan's
  // shares need them. Those left over are empty.
  [[nodiscard]] MicroBatches split_up(const StepBatch& batch, int chunks) const;
  [[nodiscard]] MicroBatches split_by_shares(const StepBatch& batch, int chunks) const;
  [[nodiscard]] pipeline::MicroBatchParts parts_of(const StepBatch& batch) const;
  // With options.micro_batch: the order of the pass's sums, and digests if they are taken.
  void sum_in_tree(pipeline::PassRequest& request, const pipeline::MicroBatchParts& how, bool takes_digests);
  [[nodiscard]] pipeline::PassResult evaluate_pass(MicroBatches micro_batches, bool keep_logits);
  class OrderedEvaluation;
  EvalStats evaluate_in_order(const StepBatch& batch, bool stop, at::Tensor* logits);
  [[nodiscard]] pipeline::ScoreFunction counter() const;
  [[nodiscard]] const pipeline::Schedule& schedule_of(int chunks);  // made and validated once
  [[nodiscard]] pipeline::PassResult run_training_pass(pipeline::PassRequest request, int chunks);
  struct Contributed;
  // Sums of gradients may still run when the pass is over.
  [[nodiscard]] bool sums_outlast_pass() const;
  Contributed contribute(const StepBatch& batch, std::int64_t step, int chunks, double gradient_scale,
                         const StepRequest& wanted);
  comm::StepOutcome sum_gradients(const Contributed& own, std::int64_t step, std::int64_t micro_batches);
  [[nodiscard]] StepStats stats_of(const Contributed& own, const comm::StepOutcome& outcome, bool counts_scores);
  [[nodiscard]] std::vector<std::vector<optim::BufferPart>> plan_update() const;  // [replica][stage]
  void exchange_average();
  // Copies replica 0's weights to the copies of tied parameters and to replicas with weights of their own.
  void spread_weights();
  // spread_weights() for weights that the sync has written.
  void take_weights();
  // Norm over all parameters, tied ones once, divided by `divisor`; if same_in_all_processes, the same bits everywhere.
  [[nodiscard]] double gradient_norm(double divisor, bool same_in_all_processes) const;
  [[nodiscard]] double of_rank_0(double number) const;
  [[nodiscard]] EvalStats over_processes(const EvalStats& local) const;

  Composition& composition_;
  TrainStepOptions options_;
  std::optional<GradientSums> sums_;
  std::shared_ptr<LayerDigests> digests_;  // of the current or last step, if it takes them
  std::optional<StepGraphs> graphs_;
  std::map<int, pipeline::Schedule> schedules_;  // by chunks
  FlopCount sample_flops_{};                     // of this process's last step with samples
};

}  // namespace sluice::engine
