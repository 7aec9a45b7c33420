#include "pipeline/statistics_exchange.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::pipeline {

std::optional<at::Tensor> StatisticsExchange::sum(ReplicaId replica, const at::Tensor& own,
                                                  const std::function<void()>& on_processes) {
  std::unique_lock lock(mutex_);
  if (closing_.stop_requested()) return std::nullopt;
  check(!shares_[index(replica)].defined(), "one share of each replica in a sum");
  shares_[index(replica)] = own;
  const auto is_there = [](const at::Tensor& share) { return share.defined(); };
  if (!std::ranges::all_of(shares_, is_there)) {
    const bool is_complete = changed_.wait(lock, closing_.get_token(), [&, number = sums_] { return sums_ != number; });
    if (!is_complete) return std::nullopt;
    return total_;  // the next sum cannot complete before this replica gives its share
  }
  at::Tensor total = shares_.front().clone();
  for (std::size_t r = 1; r < shares_.size(); ++r) total.add_(shares_[r]);
  if (processes_) {
    lock.unlock();  // no other replica can arrive meanwhile
    on_processes();
    if (!processes_->all_reduce(total).wait(closing_.get_token())) return std::nullopt;
    lock.lock();
  }
  std::ranges::fill(shares_, at::Tensor());
  total_ = total;
  ++sums_;
  changed_.notify_all();
  return total;
}

}  // namespace sluice::pipeline
