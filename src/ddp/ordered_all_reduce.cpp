#include "ddp/ordered_all_reduce.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::ddp {

OrderedAllReduce::OrderedAllReduce(std::shared_ptr<comm::Communicator> communicator, device::Device device,
                                   std::vector<at::Tensor> buckets, const Options& options)
    : communicator_(std::move(communicator)),
      stream_(device::Stream::make_beside(device)),
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
  if (end_time_ == comm::EndTime::kUnknown) return;
  base_ = stream_.moment();
  base_time_ = now_ns();
}

void OrderedAllReduce::ready(int bucket, const device::Event& summed) {
  const std::scoped_lock lock(mutex_);
  ready_[bucket] = summed;
  for (std::size_t next = started_.size(); next < buckets_.size() && ready_[next]; next = started_.size()) {
    const device::StreamGuard guard(stream_);
    stream_.wait(*ready_[next]);  // another thread may have summed this bucket
    const Nanoseconds begin = now_ns();
    std::optional<device::Moment> there;
    if (end_time_ == comm::EndTime::kNoted) there = stream_.moment();
    if (!sent_[next].is_same(buckets_[next])) sent_[next].copy_(buckets_[next]);
    started_.push_back({begin, std::move(there), communicator_->all_reduce(sent_[next], end_time_)});
  }
}

bool OrderedAllReduce::is_on_gpu() const { return stream_.device().kind == device::DeviceKind::kCuda; }

bool OrderedAllReduce::reads_gpu_clock(const comm::Pending& pending) const {
  return is_on_gpu() && end_time_ == comm::EndTime::kNoted && !pending.notes_end();
}

std::vector<SumTimes> OrderedAllReduce::wait() {
  const std::scoped_lock lock(mutex_);
  check(started_.size() == buckets_.size(), "every bucket is ready before the step ends");
  const device::StreamGuard guard(stream_);
  std::vector<SumTimes> times;
  std::vector<device::Moment> ends;
  for (std::size_t i = 0; i < started_.size(); ++i) {
    const Sum& sum = started_[i];
    sum.pending.queue_wait();
    ends.push_back(stream_.moment());
    times.push_back({sum.begin, sum.pending.end()});
    if (!sent_[i].is_same(buckets_[i])) buckets_[i].copy_(sent_[i]);  // later sums are still running
  }
  // NCCL runs operations in the order of their start, so one wait is enough. Only it reports a lost process.
  if (is_on_gpu() && !started_.empty()) started_.back().pending.wait();
  stream_.synchronize();
  for (std::size_t i = 0; i < started_.size(); ++i) {
    if (!reads_gpu_clock(started_[i].pending)) continue;
    times[i] = {started_[i].there->time(base_, base_time_), ends[i].time(base_, base_time_)};
  }
  return times;
}

}  // namespace sluice::ddp
