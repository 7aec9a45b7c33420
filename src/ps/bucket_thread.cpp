#include "ps/bucket_thread.h"

#include <utility>

#include "device/cpu_threads.h"

namespace sluice::ps {

BucketThread::BucketThread(Work work)
    : work_(std::move(work)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

void BucketThread::add(int stage, int bucket, const device::Event& summed) {
  {
    const std::scoped_lock lock(mutex_);
    if (error_) return;
    waiting_.push_back({stage, bucket, summed});
  }
  added_.notify_one();
}

void BucketThread::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return waiting_.empty() && !is_working_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void BucketThread::forget() {
  std::unique_lock lock(mutex_);
  waiting_.clear();
  done_.wait(lock, [this] { return !is_working_; });
  error_ = nullptr;
}

void BucketThread::run(const std::stop_token& stop) {
  device::use_cpu_threads(1);
  std::unique_lock lock(mutex_);
  while (added_.wait(lock, stop, [this] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    const Summed next = std::move(waiting_.front());
    waiting_.pop_front();
    is_working_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      next.event.synchronize();
      work_(next.stage, next.bucket);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    is_working_ = false;
    if (error) {
      error_ = error;
      waiting_.clear();
    }
    done_.notify_one();
  }
}

}  // namespace sluice::ps
