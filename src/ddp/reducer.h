// reducer: adds up the gradients of all replicas, bucket by bucket, while backward still runs: first over the replicas
// of this process, then over the processes. The last replica to complete a bucket adds the others' to replica 0's,
// always in replica order, so that the sum does not depend on timing. On CPU devices that is an addition in memory; on
// GPUs the shares are first copied to replica 0's device. Not here: running the optimizer; who forms the replicas.
// Threads: as comm/replica_sync.h says. Errors: PeerError when another process is lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "ddp/bucket.h"
#include "ddp/ordered_all_reduce.h"
#include "ddp/sync_timing.h"
#include "device/stream.h"

namespace sluice::ddp {

// One stage's flat gradients, one per local replica, all with the same layout.
struct StageGradients {
  StageId stage;
  std::vector<Extent> extents;
  std::vector<at::Tensor> flat;         // [replica]: 1-d
  std::vector<device::Device> devices;  // [replica]
};

// How sums leave this process; empty where there is one process only.
struct Network {
  std::vector<std::shared_ptr<comm::Communicator>> of_stage;  // [stage]: for its gradients
  std::shared_ptr<comm::Communicator> totals;                 // for numbers of targets and losses; null: not added up
};

struct ReducerOptions {
  std::size_t bucket_bytes = std::size_t{25} << 20;  // a bucket is closed when the next parameter would exceed this
  bool record_times = false;                         // of sums over the processes; the same in all of them
};

class Reducer final : public comm::ReplicaSync {
 public:
  explicit Reducer(std::vector<StageGradients> stages, ReducerOptions options = {}, Network network = {});

  void begin_step() override;
  void on_grad_ready(ReplicaId replica, ParamId param) override;
  void on_backward_done(ReplicaId replica, StageId stage) override;
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override;

 private:
  struct BucketState {
    int stage;   // position in stages_
    int number;  // among the buckets of the stage
    Bucket bucket;
    std::vector<std::vector<char>> reported;  // [replica][param of the bucket]; written by that replica's thread only
    std::vector<int> missing;                 // [replica]: parameters not reported yet
    std::vector<device::Event> ready;         // [replica]: when its share is complete
    std::atomic<int> missing_replicas;
    device::Event reduced;  // when the sum is complete; written by the last replica's thread
  };
  struct ParamPosition {
    BucketState* bucket;
    int position;  // in the bucket's params
  };

  void report(BucketState& state, int replica, int position);
  void reduce(BucketState& state);
  [[nodiscard]] at::Tensor share_of(const BucketState& state, int replica) const;
  void connect(const Network& network, bool record_times);
  // Contributions and times of all processes, exchanged in one sum of these numbers: kCounts, then each process's
  // batch, then each process's times.
  using Times = std::vector<std::vector<SumTimes>>;  // [stage][bucket]
  static constexpr std::int64_t kCounts = 5;
  [[nodiscard]] comm::StepOutcome total_of(const comm::Contribution& local, const Times& times);
  [[nodiscard]] at::Tensor numbers_of(const comm::Contribution& local, const Times& times) const;
  void tell_times(const double* all_times, const Times& times, comm::StepOutcome& outcome);
  [[nodiscard]] int replicas() const { return static_cast<int>(stages_.front().flat.size()); }

  std::vector<StageGradients> stages_;
  std::deque<BucketState> buckets_;
  std::unordered_map<int, ParamPosition> position_of_param_;
  std::atomic<int> open_buckets_ = 0;
  std::vector<std::unique_ptr<OrderedAllReduce>> between_processes_;  // [stage]; empty with one process
  std::shared_ptr<comm::Communicator> totals_;                        // null with one process
  std::optional<SyncTiming> timing_;                                  // where there are others and times are recorded
};

}  // namespace sluice::ddp
