#include "ddp/ordered_all_reduce.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace sluice::ddp {

OrderedAllReduce::OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                                   std::vector<at::Tensor> buckets, comm::EndTime end_time)
    : communicator_(std::move(communicator)),
      device_(device),
      end_time_(end_time),
      buckets_(std::move(buckets)),
      ready_(buckets_.size()) {}

void OrderedAllReduce::begin_step() {
  const std::scoped_lock lock(mutex_);
  std::ranges::fill(ready_, std::nullopt);
  started_.clear();
}

void OrderedAllReduce::ready(int bucket, const device::Event& summed) {
  const std::scoped_lock lock(mutex_);
  ready_[bucket] = summed;
  for (std::size_t next = started_.size(); next < buckets_.size() && ready_[next]; next = started_.size()) {
    device::Stream::current(device_).wait(*ready_[next]);  // another thread may have summed it
    const Nanoseconds begin = now_ns();
    started_.push_back({begin, communicator_->all_reduce(buckets_[next], end_time_)});
  }
}

std::vector<SumTimes> OrderedAllReduce::wait() {
  const std::scoped_lock lock(mutex_);
  check(started_.size() == buckets_.size(), "a step ended before every bucket was ready");
  std::vector<SumTimes> times;
  for (const Sum& sum : started_) {
    sum.pending.wait();
    times.push_back({sum.begin, sum.pending.end()});
  }
  return times;
}

}  // namespace sluice::ddp
