// bucket_thread: processes buckets of gradients (ddp/local_sum.h) in a thread of its own, one by one in the order of
// add(), once their sums are complete. Backward continues meanwhile.
// Threads: add() from any; the rest from one. Errors: wait() throws the errors of the work.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "device/stream.h"

namespace sluice::ps {

class BucketThread {
 public:
  using Work = std::function<void(int stage, int bucket)>;

  explicit BucketThread(Work work);

  void add(int stage, int bucket, const device::Event& summed);
  // Blocks until all added work is done. After an error the remaining work is dropped.
  void wait();
  // Drops the work that has not begun, blocks until the current one ends, and throws no error.
  void forget();

 private:
  struct Summed {
    int stage;
    int bucket;
    device::Event event;
  };

  void run(const std::stop_token& stop);

  Work work_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable_any added_;
  std::condition_variable done_;
  std::deque<Summed> waiting_;
  bool is_working_ = false;
  std::exception_ptr error_;
  std::jthread thread_;  // declared last, so that it ends before the other members are destroyed
};

}  // namespace sluice::ps
