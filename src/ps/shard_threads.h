// shard_threads: runs the same work on every shard of a server in parallel, on threads that live as long as this
// object. The caller also takes shards, so progress never depends on a helper that gets no core.
// Threads: run() from one at a time, not from within the work. No LibTorch, so TSan can test it. Errors: the work's.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace sluice::ps {

class ShardThreads {
 public:
  using Work = std::function<void(std::size_t shard)>;

  // threads: number of parallel threads with the caller. begin: runs first in each helper.
  explicit ShardThreads(int threads, const std::function<void()>& begin = {});

  // Calls work(0) .. work(shards - 1) once each, on any thread. Its memory effects are visible when it returns. After
  // an exception no further shard begins; it is thrown once all threads have stopped.
  void run(std::size_t shards, const Work& work);

 private:
  void help(const std::stop_token& stop);
  void take_shards(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards all members below
  std::condition_variable_any begun_;
  std::condition_variable done_;
  const Work* work_ = nullptr;
  std::size_t shards_ = 0;
  std::size_t next_ = 0;
  std::size_t working_ = 0;
  std::exception_ptr error_;
  std::vector<std::jthread> helpers_;  // declared last, so that they end before the other members are destroyed
};

}  // namespace sluice::ps
