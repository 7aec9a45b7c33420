// local_sum: adds up the gradients of this process's replicas, bucket by bucket, while backward still runs, and calls
// `Complete` for each completed bucket. The last replica to complete a bucket queues the additions in a fixed sequence
// (addition_sequence.h): in turn on CPU devices, in pairs with GPUs. They run on streams of their own, beside backward.
// On request, each replica's share is squared before the addition: the norm of its own gradient. With
// StepStart::micro_batches, shares are added in a tree instead, and may leave several sums.
// Threads: on_grad_ready() and on_backward_done() from any; the rest from one, before and after the calls of a step.
// Errors: BugError if a parameter is unknown or reported twice, or if a step ends with one missing.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "core/clock.h"
#include "ddp/addition_sequence.h"
#include "ddp/bucket.h"
#include "device/stream.h"

namespace sluice::ddp {

class LocalSum {
 public:
  // Called by the thread of the last replica to complete the bucket. stage: position in the list; bucket: number within
  // it.
  using Complete = std::function<void(int stage, int bucket, const device::Event& summed)>;

  enum class Order { kByDevices, kInPairs };
  struct Options {
    std::size_t bucket_bytes = 0;     // a bucket is closed if the next parameter would exceed this
    Order order = Order::kByDevices;  // kInPairs also applies to CPUs
    std::int64_t rank = 0;
    bool rounds_to_bf16 = false;  // rounds each sum of a tree
  };

  LocalSum(std::vector<comm::SyncedStage> stages, const Options& options, Complete complete = {});
  // Waits for the sums of a failed step, because they may still write gradients.
  ~LocalSum();
  LocalSum(const LocalSum&) = delete;
  LocalSum& operator=(const LocalSum&) = delete;

  void begin_step(const comm::StepStart& start = {});
  void on_grad_ready(ReplicaId replica, ParamId param);
  void on_backward_done(ReplicaId replica, StageId stage);
  // Blocks until all sums are complete. It waits once per GPU, not once per bucket.
  void finish_step();

  [[nodiscard]] const std::vector<comm::SyncedStage>& stages() const { return stages_; }
  // After finish_step() with takes_norms: [replica], squared norms, and the slowest device's time (on a GPU for
  // queueing).
  [[nodiscard]] std::vector<double> replica_squares() const;
  [[nodiscard]] Nanoseconds squares_time() const;

  // Views of replica 0's gradients of a stage, one per bucket, in the order in which backward completes them.
  [[nodiscard]] std::vector<at::Tensor> buckets_of(int stage) const;
  // In a step with StepStart::micro_batches: the sums that a bucket is left with, in the order of their nodes.
  [[nodiscard]] std::vector<at::Tensor> sums_of(int stage, int bucket) const;
  [[nodiscard]] int bucket_with(int stage, std::int64_t element) const;
  [[nodiscard]] int buckets() const { return static_cast<int>(buckets_.size()); }

 private:
  struct BucketState {
    int stage;   // position in stages_
    int number;  // among the buckets of the stage
    Bucket bucket;
    std::vector<std::vector<char>> reported;  // [replica][parameter of the bucket]; only that replica's thread writes
    std::vector<int> missing;                 // [replica]: number of parameters not reported yet
    std::vector<device::Event> ready;         // [replica]: its share is there
    std::atomic<int> missing_replicas;
    device::Event summed;                 // the sum is complete; the last replica's thread writes it
    std::vector<at::Tensor> squares;      // [replica]: square of its share, if norms are taken
    std::vector<Nanoseconds> squares_ns;  // [replica]
  };
  struct ParamPosition {
    BucketState* bucket;
    int position;
  };

  void add_buckets(int stage, std::size_t bucket_bytes);
  void report(BucketState& state, int replica, int position);
  void take_square(BucketState& state, int replica);
  void add_up(BucketState& state);
  [[nodiscard]] const device::Stream& queue_of(const BucketState& state, int replica) const;
  void wait_for_queues() const;
  [[nodiscard]] at::Tensor share_of(const BucketState& state, const Summand& share) const;
  [[nodiscard]] int replicas() const { return static_cast<int>(stages_.front().gradients.size()); }

  std::vector<comm::SyncedStage> stages_;
  Complete complete_;
  Options options_;
  std::vector<Addition> fixed_additions_;  // of steps without a tree
  TreeAdditions sequence_;                 // of the current step; without a tree, one sum remains in replica 0
  std::optional<Summand> moved_;           // the only sum, if replica 0 has no part in it
  bool is_in_tree_ = false;
  std::map<device::Device, device::Stream> queues_;  // streams for the additions; empty with one replica
  std::deque<BucketState> buckets_;
  std::unordered_map<int, ParamPosition> position_of_param_;
  std::atomic<int> open_buckets_ = 0;
  bool is_finished_ = true;
  bool takes_norms_ = false;
};

}  // namespace sluice::ddp
