#include "ddp/ordered_all_reduce.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace sluice::ddp {

OrderedAllReduce::OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                                   std::vector<at::Tensor> buckets)
    : communicator_(std::move(communicator)), device_(device), buckets_(std::move(buckets)), ready_(buckets_.size()) {}

void OrderedAllReduce::begin_step() {
  const std::scoped_lock lock(mutex_);
  std::ranges::fill(ready_, std::nullopt);
  pending_.clear();
}

void OrderedAllReduce::ready(int bucket, const device::Event& summed) {
  const std::scoped_lock lock(mutex_);
  ready_[bucket] = summed;
  for (std::size_t next = pending_.size(); next < buckets_.size() && ready_[next]; next = pending_.size()) {
    device::Stream::current(device_).wait(*ready_[next]);  // another thread may have summed it
    pending_.push_back(communicator_->all_reduce(buckets_[next]));
  }
}

void OrderedAllReduce::wait() {
  const std::scoped_lock lock(mutex_);
  check(pending_.size() == buckets_.size(), "a step ended before every bucket was ready");
  for (const comm::Pending& pending : pending_) pending.wait();
}

}  // namespace sluice::ddp
