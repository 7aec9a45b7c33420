// reducer: the ReplicaSync of data parallelism by all-reduce: gradients are added up over the replicas of this process
// (local_sum.h), then over the processes, bucket by bucket, while backward still runs.
// With StepStart::takes_norms the replicas' own norms are added up with the contributions.
// Not here: running the optimizer; who forms the replicas.
// Threads: as comm/replica_sync.h says. Errors: PeerError when another process is lost; those of LocalSum.
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

namespace sluice::ddp {

// How sums leave this process; empty where there is one process only.
struct Network {
  // A communicator that carries the buckets of these stages (positions in the list of stages), one stage after the
  // other. All of them lie on one device.
  struct Line {
    std::shared_ptr<comm::Communicator> communicator;
    std::vector<int> stages;
  };
  std::vector<Line> lines;                    // with each stage once
  std::shared_ptr<comm::Communicator> small;  // for numbers on the CPU; null: not added up
};

struct ReducerOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;  // a bucket is closed when the next parameter would exceed this
  bool record_times = false;                         // of sums over the processes; the same in all of them
  bool sends_bf16 = false;                           // between processes (ordered_all_reduce.h); the same in all
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
  void connect(const Network& network, const ReducerOptions& options);
  // Contributions and times of all processes, exchanged in one sum of these numbers: kCounts, then each process's
  // batch, then each process's times, then kNorms where norms are taken.
  using Times = std::vector<std::vector<SumTimes>>;  // [stage][bucket]
  static constexpr std::int64_t kCounts = 6;
  static constexpr std::int64_t kNorms = 4;
  [[nodiscard]] comm::StepOutcome total_of(const comm::Contribution& local, const comm::ReplicaNorms& norms,
                                           const Times& times);
  [[nodiscard]] at::Tensor numbers_of(const comm::Contribution& local, const comm::ReplicaNorms& norms,
                                      const Times& times) const;
  void report_times(const double* all_times, const Times& times, comm::StepOutcome& outcome);

  // Where a stage's buckets are in between_processes_.
  struct StageBuckets {
    OrderedAllReduce* line;
    int first;  // of its buckets
    int buckets;
  };

  LocalSum local_;
  std::vector<std::unique_ptr<OrderedAllReduce>> between_processes_;  // [line]; empty with one process
  std::vector<StageBuckets> buckets_of_stage_;                        // [stage]; empty with one process
  std::shared_ptr<comm::Communicator> small_;                         // null with one process
  std::optional<SyncTiming> timing_;                                  // where there are others and times are recorded
};

}  // namespace sluice::ddp
