#include "ps/shard_threads.h"

#include <utility>

namespace sluice::ps {

ShardThreads::ShardThreads(int threads, const std::function<void()>& begin) {
  for (int helper = 1; helper < threads; ++helper) {
    helpers_.emplace_back([this, begin](const std::stop_token& stop) {
      if (begin) begin();
      help(stop);
    });
  }
}

void ShardThreads::run(std::size_t shards, const Work& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  shards_ = shards;
  next_ = 0;
  for (std::size_t helper = 0; helper < helpers_.size() && helper + 1 < shards; ++helper) begun_.notify_one();
  take_shards(lock);
  done_.wait(lock, [this] { return working_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ShardThreads::help(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, stop, [this] { return next_ < shards_; })) take_shards(lock);
}

// Works until no shard is left. The lock is released only during the work.
void ShardThreads::take_shards(std::unique_lock<std::mutex>& lock) {
  while (next_ < shards_) {
    const std::size_t shard = next_++;
    const Work& work = *work_;
    ++working_;
    lock.unlock();
    std::exception_ptr error;
    try {
      work(shard);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --working_;
    if (!error) continue;
    if (!error_) error_ = error;
    next_ = shards_;
  }
  if (working_ == 0) done_.notify_one();
}

}  // namespace sluice::ps
