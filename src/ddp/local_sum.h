// local_sum: adds up the gradients of the replicas of this process, bucket by bucket, while backward still runs, and
// tells when a bucket is complete. The last replica to complete a bucket queues the additions, always in the same order
// (addition_sequence.h), so that the sum does not depend on timing: in turn where all replicas are on CPU devices,
// whose one memory makes no order faster than another; in pairs where GPUs are among them. Of two GPUs the one's share
// is first copied to the other. All of it runs on queues of its own, one a GPU: backward goes on beside it. Where it is
// asked for, each replica's share is squared before it is added: the norm of its own gradient. Not here: other
// processes (reducer.h). Threads: on_grad_ready() and on_backward_done() from any; the rest from one, before and after
// those of a step. Errors: BugError for a parameter that is unknown or reported twice, and for a step that ends with
// one missing.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
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
  // What is done with a bucket that is complete, by the thread of the last replica to complete it.
  // stage: position in the list of stages; bucket: number within the stage; summed: when the sum is there.
  using Complete = std::function<void(int stage, int bucket, const device::Event& summed)>;

  enum class Order { kByDevices, kInPairs };

  // bucket_bytes: a bucket is closed when the next parameter would exceed this. order: kInPairs on CPU devices, too.
  LocalSum(std::vector<comm::SyncedStage> stages, std::size_t bucket_bytes, Complete complete = {},
           Order order = Order::kByDevices);
  // Waits for the sums of a step that failed: they may still write gradients.
  ~LocalSum();
  LocalSum(const LocalSum&) = delete;
  LocalSum& operator=(const LocalSum&) = delete;

  void begin_step(bool takes_norms = false);
  void on_grad_ready(ReplicaId replica, ParamId param);
  void on_backward_done(ReplicaId replica, StageId stage);
  // Blocks until all sums are there: once for each GPU, not for each bucket.
  void finish_step();

  [[nodiscard]] const std::vector<comm::SyncedStage>& stages() const { return stages_; }
  // After finish_step() of a step that takes norms: [replica], the square of the norm of its own gradient; and how long
  // that took the threads of the (replica, device) that worked longest on it. On a GPU without what is only queued.
  [[nodiscard]] std::vector<double> replica_squares() const;
  [[nodiscard]] Nanoseconds squares_time() const;

  // Replica 0's gradients of a stage, bucket by bucket: views, in the order in which backward completes them.
  [[nodiscard]] std::vector<at::Tensor> buckets_of(int stage) const;
  // Number of the bucket that has this element of the stage's gradients.
  [[nodiscard]] int bucket_with(int stage, std::int64_t element) const;
  [[nodiscard]] int buckets() const { return static_cast<int>(buckets_.size()); }  // of all stages

 private:
  struct BucketState {
    int stage;   // position in stages_
    int number;  // among the buckets of the stage
    Bucket bucket;
    std::vector<std::vector<char>> reported;  // [replica][param of the bucket]; written by that replica's thread only
    std::vector<int> missing;                 // [replica]: parameters not reported yet
    std::vector<device::Event> ready;         // [replica]: when its share is complete
    std::atomic<int> missing_replicas;
    device::Event summed;                 // when the sum is complete; written by the last replica's thread
    std::vector<at::Tensor> squares;      // [replica]: of its share, where norms are taken
    std::vector<Nanoseconds> squares_ns;  // [replica]
  };
  struct ParamPosition {
    BucketState* bucket;
    int position;  // in the bucket's params
  };

  void add_buckets(int stage, std::size_t bucket_bytes);
  void report(BucketState& state, int replica, int position);
  void take_square(BucketState& state, int replica);
  void add_up(BucketState& state);
  [[nodiscard]] const device::Stream& queue_of(const BucketState& state, int replica) const;
  void wait_for_queues() const;
  [[nodiscard]] at::Tensor share_of(const BucketState& state, int replica) const;
  [[nodiscard]] int replicas() const { return static_cast<int>(stages_.front().gradients.size()); }

  std::vector<comm::SyncedStage> stages_;
  Complete complete_;
  std::vector<Addition> additions_;
  std::map<device::Device, device::Stream> queues_;  // for the sums; empty with one replica
  std::deque<BucketState> buckets_;
  std::unordered_map<int, ParamPosition> position_of_param_;
  std::atomic<int> open_buckets_ = 0;
  bool is_finished_ = true;  // the last step that began
  bool takes_norms_ = false;
};

}  // namespace sluice::ddp
