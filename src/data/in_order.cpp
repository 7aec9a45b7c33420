#include "data/in_order.h"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/progress_line.h"

namespace sluice::data {
namespace {

class Work {
 public:
  Work(const std::function<Job()>& next, const std::function<std::string()>& progress)
      : next_(next), progress_(progress) {}

  void run() {
    std::unique_lock lock(mutex_);
    while (!has_ended_ && !error_) {
      Job job = take_job();
      if (!job) {
        has_ended_ = true;
        return;
      }
      const std::int64_t number = given_++;
      lock.unlock();
      std::exception_ptr failure;
      Finish finish;
      try {
        finish = job();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      changed_.wait(lock, [&] { return finished_ == number || error_; });
      if (!error_) complete(finish, failure);
    }
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Job take_job() {
    try {
      return next_();
    } catch (...) {
      return [failure = std::current_exception()]() -> Finish { std::rethrow_exception(failure); };
    }
  }

  void complete(const Finish& finish, std::exception_ptr failure) {
    try {
      if (failure) std::rethrow_exception(std::move(failure));
      finish();
      line_.show(progress_);
    } catch (...) {
      error_ = std::current_exception();
    }
    ++finished_;
    changed_.notify_all();
  }

  const std::function<Job()>& next_;
  const std::function<std::string()>& progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t given_ = 0, finished_ = 0;
  bool has_ended_ = false;
  std::exception_ptr error_;
  ProgressLine line_;
};

}  // namespace

void in_order(int threads, const std::function<Job()>& next, const std::function<std::string()>& progress) {
  Work work(next, progress);
  if (threads < 1) threads = static_cast<int>(std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back([&] { work.run(); });
    work.run();
  }
  work.rethrow();
}

}  // namespace sluice::data
