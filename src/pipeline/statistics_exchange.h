// statistics_exchange: sums small tensors over the replicas of one device position, in this process and, through a
// communicator, in the other processes. Synchronised batch-norm needs it while a pass runs.
// Threads: sum() from the thread of each replica, the same calls in the same order in all of them; close() from any
// thread. The last replica to arrive adds up in replica order and represents the process: it alone waits for the other
// processes, until they arrive, one is lost, close() is called, or the communicator's time limit has passed. No busy
// waiting.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "core/ids.h"

namespace sluice::pipeline {

class StatisticsExchange {
 public:
  // processes: the same exchange with the other processes; null if there are none.
  StatisticsExchange(int replicas, std::shared_ptr<comm::Communicator> processes)
      : processes_(std::move(processes)), shares_(replicas) {}

  // Returns nullopt if the exchange is closed before the sum is complete. on_processes: called before the wait for
  // other processes, in the replica that represents this one. Errors: PeerError if another process is lost.
  [[nodiscard]] std::optional<at::Tensor> sum(
      ReplicaId replica, const at::Tensor& own, const std::function<void()>& on_processes = [] {});
  // Ends every wait, permanently. A running sum over the processes continues without a waiter, so their communicator
  // must not be used again.
  void close() { closing_.request_stop(); }

 private:
  std::shared_ptr<comm::Communicator> processes_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<at::Tensor> shares_;  // [replica]; undefined until it arrives
  at::Tensor total_;
  std::int64_t sums_ = 0;  // number of complete sums
  std::stop_source closing_;
};

}  // namespace sluice::pipeline
