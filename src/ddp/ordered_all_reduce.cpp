#include "ddp/ordered_all_reduce.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::ddp {

OrderedAllReduce::OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                                   std::vector<at::Tensor> buckets, const Options& options)
    : communicator_(std::move(communicator)),
      device_(device),
      end_time_(options.end_time),
      buckets_(std::move(buckets)),
      sent_(buckets_),
      ready_(buckets_.size()) {
  for (at::Tensor& sent : sent_) {
    if (options.sends_bf16) sent = at::empty_like(sent, sent.options().dtype(at::kBFloat16));
  }
}

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
    if (!sent_[next].is_same(buckets_[next])) sent_[next].copy_(buckets_[next]);
    started_.push_back({begin, communicator_->all_reduce(sent_[next], end_time_)});
  }
}

std::vector<SumTimes> OrderedAllReduce::wait() {
  const std::scoped_lock lock(mutex_);
  check(started_.size() == buckets_.size(), "a step ended before every bucket was ready");
  std::vector<SumTimes> times;
  for (std::size_t i = 0; i < started_.size(); ++i) {
    const Sum& sum = started_[i];
    sum.pending.wait();
    times.push_back({sum.begin, sum.pending.end()});
    if (!sent_[i].is_same(buckets_[i])) buckets_[i].copy_(sent_[i]);  // while later ones are under way
  }
  return times;
}

}  // namespace sluice::ddp
