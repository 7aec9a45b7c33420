// bucket_thread: does something with each bucket of gradients (ddp/local_sum.h) once its sum is there, in a thread of
// its own, one after the other in the order in which they were given, so that backward goes on meanwhile. Threads:
// add() from any; the rest from one. Errors: those of the work, thrown by wait().
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
  using Work = std::function<void(int stage, int bucket)>;  // as ddp::LocalSum::Complete

  explicit BucketThread(Work work);

  // `summed`: when the bucket may be read.
  void add(int stage, int bucket, const device::Event& summed);
  // Until all that was added is done. After an error the rest of it is not.
  void wait();
  // Likewise, but what has not begun is dropped, and no error is thrown.
  void forget();

 private:
  struct Summed {
    int stage;
    int bucket;
    device::Event event;
  };

  void run(const std::stop_token& stop);

  Work work_;
  std::mutex mutex_;  // of all below
  std::condition_variable_any added_;
  std::condition_variable done_;
  std::deque<Summed> waiting_;
  bool is_working_ = false;
  std::exception_ptr error_;
  std::jthread thread_;  // the last member: it ends before the others do
};

}  // namespace sluice::ps
