// ordered_all_reduce: sums one device's buckets over the processes of a run. All processes have to start a
// communicator's operations in the same order, so a bucket that is ready early waits for those before it. With
// Options::sends_bf16 each addend and each partial sum of P processes is rounded to nearest bfloat16: to first order, a
// value differs from the exact sum by at most P 2^-8 sum |g_p|. All processes have the same bits.
// Threads: ready() from any; begin_step() and wait() from one, before and after the calls of a step. Errors: PeerError.
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
  // buckets: in the order in which they are started; all lie on `device`. No other object may use the communicator.
  OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                   std::vector<at::Tensor> buckets, const Options& options);

  void begin_step();
  void ready(int bucket, const device::Event& summed);
  // Blocks until every bucket is the sum over all processes. The returned times count only with EndTime::kNoted.
  [[nodiscard]] std::vector<SumTimes> wait();
  [[nodiscard]] std::int64_t sent_bytes(int bucket) const { return static_cast<std::int64_t>(sent_[bucket].nbytes()); }

 private:
  std::shared_ptr<comm::Communicator> communicator_;
  device::Stream stream_;
  comm::EndTime end_time_;
  std::vector<at::Tensor> buckets_;
  std::vector<at::Tensor> sent_;  // the buckets themselves, or their copies in bfloat16
  std::mutex mutex_;
  std::vector<std::optional<device::Event>> ready_;  // guarded by mutex_
  struct Sum {
    Nanoseconds begin;                    // host time
    std::optional<device::Moment> there;  // this process's part is complete; set with EndTime::kNoted
    comm::Pending pending;
  };
  [[nodiscard]] bool is_on_gpu() const;
  [[nodiscard]] bool reads_gpu_clock(const comm::Pending& pending) const;
  std::vector<Sum> started_;  // guarded by mutex_
  device::Moment base_;
  Nanoseconds base_time_ = 0;
};

}  // namespace sluice::ddp
