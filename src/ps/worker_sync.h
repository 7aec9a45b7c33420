// worker_sync: the ReplicaSync of a worker of a parameter server. A round of one or more steps begins with one version
// of the weights on all stages and ends with a push of
//   kGradients  the sum of the gradients of its local replicas over its targets, not their mean: the server knows how
//               many targets there are in all, and its optimizer makes the update. A round is one step. Each bucket
//               is sent as soon as backward has completed it, where the link takes it so
//   kWeights    the worker's own, after updates of its own optimizer, with its running statistics
//   kDelta      the weights that it began with minus those
// Along with gradients and deltas goes what has changed in the running statistics. The worker's optimizer is the
// caller's: its state outlives the rounds.
// Threads: as comm/replica_sync.h says. Errors: those of the link and of ddp/local_sum.h; ConfigError where the model
// is another than the server's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/replica_sync.h"
#include "ddp/local_sum.h"
#include "ps/bucket_thread.h"
#include "ps/server_link.h"

namespace sluice::ps {

// Whether one more micro-batch of this step may run (comm::ReplicaSync::admits); from any thread.
using Admission = std::function<bool(ReplicaId, MicroBatchId)>;

// A server's model, from the stages of a worker: what is trained, without the copies of tied parameters.
[[nodiscard]] Layout layout_of(const std::vector<comm::SyncedStage>& stages, LayoutOptions options);
[[nodiscard]] std::vector<at::Tensor> values_of(const std::vector<comm::SyncedStage>& stages);  // [parameter], copies
[[nodiscard]] at::Tensor statistics_of(const std::vector<comm::SyncedStage>& stages);           // a copy

// What a worker does between a pull and a push.
struct Round {
  std::int64_t steps = 1;  // of its own optimizer; 1 with gradients
  double factor = 1;       // of the push (PushRecord)
};

struct WorkerSyncOptions {
  Payload payload = Payload::kGradients;
  Admission admission = {};  // with gradients only
};

class WorkerSync final : public comm::ReplicaSync {
 public:
  WorkerSync(std::vector<comm::SyncedStage> stages, std::size_t bucket_bytes, std::shared_ptr<ServerLink> link,
             WorkerSyncOptions options = {});

  // The next step begins a round; one that has not come to its end is forgotten. Without it a round is one step.
  void begin_round(const Round& round);

  [[nodiscard]] bool begin_step(const comm::StepStart& start) override;
  [[nodiscard]] bool admits(ReplicaId replica, MicroBatchId micro_batch) override;
  void on_grad_ready(ReplicaId replica, ParamId param) override { sum_.on_grad_ready(replica, param); }
  void on_backward_done(ReplicaId replica, StageId stage) override { sum_.on_backward_done(replica, stage); }
  [[nodiscard]] bool takes_statistics() const override { return true; }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override;
  [[nodiscard]] bool on_updated() override;
  // Other workers are not kept in step: to the training step this process is alone.
  [[nodiscard]] int processes() const override { return 1; }
  [[nodiscard]] int rank() const override { return 0; }
  void sum(const at::Tensor&) override {}
  void take_rank_0s(const at::Tensor&) override {}

 private:
  // A piece of a parameter, where it is in a stage and where in a shard.
  struct Move {
    std::size_t stage;  // position in the list
    std::size_t shard;
    std::int64_t begin, offset, elements;
    bool is_copy;  // of a tied parameter: its gradient is added to the owner's, its value is not written
  };
  // What goes ahead of a push in one message.
  struct Ahead {
    std::size_t shard;
    std::vector<Move> moves;  // one after the other; none is a copy
  };

  void find_moves();
  void plan_ahead();
  void send_bucket(int stage, int bucket);
  void send_ahead(const Ahead& ahead, const std::vector<Move>& copies);
  [[nodiscard]] at::Tensor gradient_of(const Move& move) const;
  void write_weights();
  [[nodiscard]] Tensors gradients();
  [[nodiscard]] Tensors own_tensors() const;
  void push(Tensors tensors);

  ddp::LocalSum sum_;
  std::shared_ptr<ServerLink> link_;
  WorkerSyncOptions options_;
  std::vector<Move> moves_;                                  // owners before copies
  std::map<std::pair<int, int>, std::vector<Ahead>> ahead_;  // of a stage's bucket: of parameters that are not tied
  std::vector<Ahead> tied_;                                  // which are complete at the end
  std::vector<Move> copies_;
  bool goes_ahead_ = false;    // the push of this step
  double gradient_scale_ = 1;  // of this step
  Tensors pulled_;
  std::int64_t version_ = 0;  // of the weights that the round began with
  Round round_;
  std::int64_t steps_done_ = 0;  // of it
  comm::Contribution done_;      // in them
  bool is_trial_ = false;
  std::optional<BucketThread> thread_;  // where pushes go ahead; the last member, as it uses the others
};

}  // namespace sluice::ps
