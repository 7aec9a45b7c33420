#include "ddp/ordered_all_reduce.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace sluice::ddp {

OrderedAllReduce::OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> buckets)
    : communicator_(std::move(communicator)), buckets_(std::move(buckets)), ready_(buckets_.size()) {}

void OrderedAllReduce::begin_step() {
  const std::scoped_lock lock(mutex_);
  std::ranges::fill(ready_, char{0});
  pending_.clear();
}

void OrderedAllReduce::ready(int bucket) {
  const std::scoped_lock lock(mutex_);
  ready_[bucket] = 1;
  while (pending_.size() < buckets_.size() && ready_[pending_.size()] != 0)
    pending_.push_back(communicator_->all_reduce(buckets_[pending_.size()]));
}

void OrderedAllReduce::wait() {
  const std::scoped_lock lock(mutex_);
  check(pending_.size() == buckets_.size(), "a step ended before every bucket was ready");
  for (const comm::Pending& pending : pending_) pending.wait();
}

}  // namespace sluice::ddp
