// reducer: the ReplicaSync of data parallelism by all-reduce. Gradients are added up over this process's replicas
// (local_sum.h) and then over the processes, bucket by bucket, while backward still runs. In steps with
// StepStart::micro_batches, losses, scores and gradients are added in orders that do not depend on the layout.
// Threads: as in comm/replica_sync.h. Errors: PeerError if another process is lost; the errors of LocalSum.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "ddp/local_sum.h"
#include "ddp/ordered_all_reduce.h"
#include "ddp/sync_timing.h"
#include "ddp/tree_exchange.h"

namespace sluice::ddp {

struct Network {
  // A communicator for the buckets of these stages (indices in the list), one stage after the other; all on one device.
  struct Line {
    std::shared_ptr<comm::Communicator> communicator;
    std::vector<int> stages;
  };
  std::vector<Line> lines;                    // each stage is in exactly one line
  std::shared_ptr<comm::Communicator> small;  // for numbers on the CPU; null: they are not summed
};

struct ReducerOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;  // a bucket is closed if the next parameter would exceed this
  bool record_times = false;                         // times of the sums over the processes; the same in all processes
  bool sends_bf16 = false;  // between processes (ordered_all_reduce.h); the same in all processes
};

class Reducer final : public comm::ReplicaSync {
 public:
  explicit Reducer(std::vector<comm::SyncedStage> stages, ReducerOptions options = {}, Network network = {});

  [[nodiscard]] bool begin_step(const comm::StepStart& start) override;
  void on_grad_ready(ReplicaId replica, ParamId param) override { local_.on_grad_ready(replica, param); }
  void on_backward_done(ReplicaId replica, StageId stage) override { local_.on_backward_done(replica, stage); }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override;
  [[nodiscard]] int processes() const override { return small_ ? small_->size() : 1; }
  [[nodiscard]] int rank() const override { return small_ ? small_->rank() : 0; }
  void sum(const at::Tensor& numbers) override;
  void take_rank_0s(const at::Tensor& numbers) override;

 private:
  void connect(Network network);
  // Contributions and times of all processes are exchanged in one sum. Layout: kCounts numbers, the scores, each
  // process's batch, each process's times, then kNorms numbers if norms are taken, then loss and scores of each
  // micro-batch if these are summed in their order.
  using Times = std::vector<std::vector<SumTimes>>;  // [stage][bucket]
  static constexpr std::int64_t kCounts = 6;
  static constexpr std::int64_t kNorms = 4;
  [[nodiscard]] comm::StepOutcome total_of(const comm::Contribution& local, const comm::ReplicaNorms& norms,
                                           const Times& times);
  [[nodiscard]] at::Tensor numbers_of(const comm::Contribution& local, const comm::ReplicaNorms& norms,
                                      const Times& times) const;
  void report_times(const double* all_times, const Times& times, comm::StepOutcome& outcome);

  struct LineSums {
    Network::Line network;
    std::vector<at::Tensor> buckets;
    std::unique_ptr<OrderedAllReduce> ordered;
    std::unique_ptr<TreeExchange> tree;  // null until a step needs it
  };
  struct StageBuckets {
    LineSums* line;
    int first;
    int buckets;
  };
  void begin_tree(std::int64_t micro_batches);
  void on_summed(int stage, int bucket, const device::Event& summed);
  [[nodiscard]] std::vector<SumTimes> wait_for(const LineSums& line) const;
  [[nodiscard]] std::int64_t sent_bytes(const StageBuckets& of_stage, int bucket) const;
  [[nodiscard]] std::int64_t first_micro_batch(int process) const;  // of the current step

  ReducerOptions options_;
  LocalSum local_;
  std::int64_t micro_batches_ = 0;                            // of the current step, as in comm::StepStart
  Parts parts_ = 1;                                           // of the current step
  bool exchanges_ = false;                                    // the lines' trees sum the current step
  std::vector<std::unique_ptr<LineSums>> between_processes_;  // [line]; empty with one process
  std::vector<StageBuckets> buckets_of_stage_;                // [stage]; empty with one process
  std::shared_ptr<comm::Communicator> small_;                 // null with one process
  std::optional<SyncTiming> timing_;  // set if times are recorded and there are several processes
};

}  // namespace sluice::ddp
