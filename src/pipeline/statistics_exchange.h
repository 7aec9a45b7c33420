// statistics_exchange: sums of small tensors over the replicas of one device position, in this process and, by a
// communicator, over the others: what synchronised batch-norm needs while a pass runs.
// Threads: sum() from the thread of each replica, all of them the same calls in the same order; close() from any.
// The last replica to come adds up, in replica order, and speaks for the process: it alone waits for the other
// processes, until they come, one is lost, close() is called, or the communicator's time limit has passed.
// No busy waiting.
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
  // processes: the same exchange of the other processes; null where there are none.
  StatisticsExchange(int replicas, std::shared_ptr<comm::Communicator> processes)
      : processes_(std::move(processes)), shares_(replicas) {}

  // Nothing when it is closed before the sum is there. on_processes: called before the wait for the other processes, in
  // the replica that speaks for this one. Errors: PeerError when another process is lost.
  [[nodiscard]] std::optional<at::Tensor> sum(
      ReplicaId replica, const at::Tensor& own, const std::function<void()>& on_processes = [] {});
  // Ends every wait, for good. A sum over the processes that is under way goes on without anybody who waits for it:
  // their communicator is of no further use.
  void close() { closing_.request_stop(); }

 private:
  std::shared_ptr<comm::Communicator> processes_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<at::Tensor> shares_;  // [replica]; undefined until it has come
  at::Tensor total_;                // of the last sum that was complete
  std::int64_t sums_ = 0;           // complete ones
  std::stop_source closing_;
};

}  // namespace sluice::pipeline
