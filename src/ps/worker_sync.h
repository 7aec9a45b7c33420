// worker_sync: the ReplicaSync of a worker of a parameter server. A round of one or more steps begins with one version
// of the weights on all stages and ends with a push of
//   kGradients  the sum, not the mean, of its local replicas' gradients over its targets; the server's optimizer
//               makes the update. A round is one step. Each bucket is sent as soon as it is complete, if the link can
//   kWeights    the worker's own weights, after updates of its own optimizer, with its running statistics
//   kDelta      the weights at the start of the round minus its own weights
// Gradients and deltas come with the change of the running statistics. The caller owns the worker's optimizer.
// Threads: as in comm/replica_sync.h. Errors: those of the link and of ddp/local_sum.h; ConfigError for another model.
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

// Whether one more micro-batch of this step may run (comm::ReplicaSync::admits). Called from any thread.
using Admission = std::function<bool(ReplicaId, MicroBatchId)>;

// The server's model, from a worker's stages: trained parameters without copies of tied ones.
[[nodiscard]] Layout layout_of(const std::vector<comm::SyncedStage>& stages, LayoutOptions options);
[[nodiscard]] std::vector<at::Tensor> values_of(const std::vector<comm::SyncedStage>& stages);  // [parameter], copies
[[nodiscard]] at::Tensor statistics_of(const std::vector<comm::SyncedStage>& stages);           // a copy

struct Round {
  std::int64_t steps = 1;  // number of steps of its own optimizer; 1 with gradients
  double factor = 1;       // PushRecord::factor of the push
};

struct WorkerSyncOptions {
  Payload payload = Payload::kGradients;
  Admission admission = {};  // with gradients only
};

class WorkerSync final : public comm::ReplicaSync {
 public:
  WorkerSync(std::vector<comm::SyncedStage> stages, std::size_t bucket_bytes, std::shared_ptr<ServerLink> link,
             WorkerSyncOptions options = {});

  // The next step begins a round; an unfinished round is discarded. Without this call every step is a round.
  void begin_round(const Round& round);

  [[nodiscard]] bool begin_step(const comm::StepStart& start) override;
  [[nodiscard]] bool admits(ReplicaId replica, MicroBatchId micro_batch) override;
  void on_grad_ready(ReplicaId replica, ParamId param) override { sum_.on_grad_ready(replica, param); }
  void on_backward_done(ReplicaId replica, StageId stage) override { sum_.on_backward_done(replica, stage); }
  [[nodiscard]] bool takes_statistics() const override { return true; }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override;
  [[nodiscard]] bool on_updated() override;
  // Other workers run independently: to the training step this process is alone.
  [[nodiscard]] int processes() const override { return 1; }
  [[nodiscard]] int rank() const override { return 0; }
  void sum(const at::Tensor&) override {}
  void take_rank_0s(const at::Tensor&) override {}

 private:
  // A piece of a parameter, with its position in a stage and in a shard.
  struct Move {
    std::size_t stage;
    std::size_t shard;
    std::int64_t begin, offset, elements;
    bool is_copy;  // copy of a tied parameter: its gradient is added to the owner's; its value is not written
  };
  struct Ahead {
    std::size_t shard;
    std::vector<Move> moves;  // one after the other; without copies
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
  std::map<std::pair<int, int>, std::vector<Ahead>> ahead_;  // [stage, bucket]: parameters that are not tied
  std::vector<Ahead> tied_;                                  // tied parameters, complete only at the end of the step
  std::vector<Move> copies_;
  bool goes_ahead_ = false;
  double gradient_scale_ = 1;
  Tensors pulled_;
  std::int64_t version_ = 0;  // version of the weights at the start of the round
  Round round_;
  std::int64_t steps_done_ = 0;
  comm::Contribution done_;  // sum over the steps of the round
  bool is_trial_ = false;
  std::optional<BucketThread> thread_;  // if pushes go ahead; last member, as it uses the others
};

}  // namespace sluice::ps
