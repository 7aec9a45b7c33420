// shard_threads: does the same to every shard of a server, several at once, on threads that live as long as it.
// Whoever is free takes the next shard: the caller among them, so that nothing waits for a thread that gets no core.
// Not here: what is done; which shards are worth it. The result must not depend on which thread does what.
// Threads: run() from one at a time, and not from within the work; no LibTorch, tested under TSan. Waits are on
// condition variables only. Errors: those of the work.
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

  // threads: that work at once, the caller's included. begin: what each of the others does first.
  explicit ShardThreads(int threads, const std::function<void()>& begin = {});

  // Calls work(0) .. work(shards - 1), each once, and returns when all have returned; what they have done is seen by
  // the caller, and what it did before by them. After an exception no further shard is begun, and the first one is
  // thrown once nobody works any more; run() may be called again.
  void run(std::size_t shards, const Work& work);

 private:
  void help(const std::stop_token& stop);
  void take_shards(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // of all below
  std::condition_variable_any begun_;
  std::condition_variable done_;
  const Work* work_ = nullptr;
  std::size_t shards_ = 0;
  std::size_t next_ = 0;     // shard that nobody has taken
  std::size_t working_ = 0;  // threads
  std::exception_ptr error_;
  std::vector<std::jthread> helpers_;  // the last member: they end before the others do
};

}  // namespace sluice::ps
