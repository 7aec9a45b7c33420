// statistics_exchange: sums of small tensors over the replicas of one device position, in this process and, by a
// communicator, over the others: what synchronised batch-norm needs while a pass runs.
// Threads: sum() from the thread of each replica, all of them the same calls in the same order; close() from any.
// The last replica to come adds up, in replica order, and speaks for the process. No busy waiting.
#pragma once

#include <condition_variable>
#include <cstdint>
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

  // Nothing once it is closed. Errors: PeerError when another process is lost.
  [[nodiscard]] std::optional<at::Tensor> sum(ReplicaId replica, const at::Tensor& own);
  void close();

  // A replica whose share the running sum lacks; nothing when there is none.
  [[nodiscard]] std::optional<ReplicaId> missing() const;

 private:
  std::shared_ptr<comm::Communicator> processes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> shares_;  // [replica]; undefined until it has come
  at::Tensor total_;                // of the last sum that was complete
  std::int64_t sums_ = 0;           // complete ones
  bool closed_ = false;
};

}  // namespace sluice::pipeline
