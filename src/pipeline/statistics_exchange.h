// statistics_exchange: sums of small tensors over the replicas of one device position, in this process and, by a
// communicator, over the others: what synchronised batch-norm needs while a pass runs.
// Threads: sum() from the thread of each replica, all of them the same calls in the same order; close() from any.
// The last replica to come adds up, in replica order, and speaks for the process. No busy waiting.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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

  // Nothing once it is closed. on_processes: called before the wait for the other processes, in the replica that speaks
  // for this one. Errors: PeerError when another process is lost.
  [[nodiscard]] std::optional<at::Tensor> sum(
      ReplicaId replica, const at::Tensor& own, const std::function<void()>& on_processes = [] {});
  void close();

 private:
  std::shared_ptr<comm::Communicator> processes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> shares_;  // [replica]; undefined until it has come
  at::Tensor total_;                // of the last sum that was complete
  std::int64_t sums_ = 0;           // complete ones
  bool closed_ = false;
};

}  // namespace sluice::pipeline
