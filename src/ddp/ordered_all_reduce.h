// ordered_all_reduce: the sums of one device's buckets over the processes of a run. Operations on one communicator have
// to be started in the same order by all of them, whatever order the buckets become ready in here: one that is early
// waits for those before it. With Options::sends_bf16 the processes exchange copies in bfloat16, half the bytes: each
// addend and each partial sum of P processes is rounded to nearest (2^-8), so that a value differs from the exact sum
// by at most P 2^-8 sum |g_p| to first order; all processes still have the same bits. On a GPU they are started from a
// queue of their own, so that computing waits for none of them. Not here: sums over the replicas
// of a process (local_sum.h). Threads: ready() from any; begin_step() and wait() from one, between and after the calls
// of ready() of a step. Errors: PeerError.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "ddp/sync_timing.h"
#include "device/stream.h"

namespace sluice::ddp {

class OrderedAllReduce {
 public:
  struct Options {
    comm::EndTime end_time = comm::EndTime::kUnknown;
    bool sends_bf16 = false;
  };
  // buckets: in the order in which they are started; nobody else uses the communicator.
  // device: where they lie.
  OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                   std::vector<at::Tensor> buckets, const Options& options);

  void begin_step();
  // Bucket number `bucket` has what this process adds to it once `summed` is over.
  void ready(int bucket, const device::Event& summed);
  // Blocks until every bucket is the sum over all processes: with NCCL once. When each of them was under way, where
  // end_time asks for it: by the GPU's own clock with NCCL, else from when it was queued.
  [[nodiscard]] std::vector<SumTimes> wait();
  // Of what is exchanged of a bucket.
  [[nodiscard]] std::int64_t sent_bytes(int bucket) const { return static_cast<std::int64_t>(sent_[bucket].nbytes()); }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
  device::Stream stream_;
  comm::EndTime end_time_;
  std::vector<at::Tensor> buckets_;
  std::vector<at::Tensor> sent_;  // what is exchanged: the buckets themselves, or their copies in bfloat16
  std::mutex mutex_;
  std::vector<std::optional<device::Event>> ready_;  // guarded by mutex_
  struct Sum {
    Nanoseconds begin;                    // the host's time
    std::optional<device::Moment> there;  // when this process's part was there; where the GPU's clock counts
    comm::Pending pending;
  };
  [[nodiscard]] bool is_on_gpu() const;
  // The backend does not note when it was over.
  [[nodiscard]] bool reads_gpu_clock(const comm::Pending& pending) const;
  std::vector<Sum> started_;  // guarded by mutex_
  device::Moment base_;       // of the step, on the idle stream
  Nanoseconds base_time_ = 0;
};

}  // namespace sluice::ddp
