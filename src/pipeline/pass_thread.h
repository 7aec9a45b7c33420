// pass_thread: the state of one device thread during a pass. Internal to pass.cpp and pass_prefix.cpp.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nn/replica_sum.h"
#include "pipeline/pass.h"

namespace sluice::pipeline {

// Ends this thread after another stage failed. Autograd, which it may pass, forwards a std::exception only.
struct StoppedByNeighbour : std::exception {};

static_assert(std::atomic<Standing>::is_always_lock_free);

inline void set_wait(std::atomic<Standing>& standing, Wait wait) {
  standing.store({standing.load(std::memory_order_relaxed).position, wait}, std::memory_order_relaxed);
}

class WaitScope {
 public:
  WaitScope(std::atomic<Standing>& standing, Wait wait) : standing_(standing) { set_wait(standing_, wait); }
  ~WaitScope() { set_wait(standing_, Wait::kNothing); }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  std::atomic<Standing>& standing_;
};

class Pass::OwnSum final : public nn::ReplicaSum {
 public:
  OwnSum(StatisticsExchange& exchange, ReplicaId replica, StreamSpans& spans, std::atomic<Standing>& standing)
      : exchange_(exchange), replica_(replica), spans_(spans), standing_(standing) {}

  [[nodiscard]] at::Tensor sum(const at::Tensor& own) override {
    const StreamSpanScope exchanging(spans_, Phase::kAllReduce);
    const WaitScope waiting(standing_, Wait::kReplicas);
    std::optional<at::Tensor> total = exchange_.sum(replica_, own, [this] { set_wait(standing_, Wait::kProcesses); });
    if (!total) throw StoppedByNeighbour{};
    return *std::move(total);
  }

 private:
  StatisticsExchange& exchange_;
  ReplicaId replica_;
  StreamSpans& spans_;
  std::atomic<Standing>& standing_;
};

struct Pass::DeviceThread {
  const Slot& slot;
  const SlotStreams& streams;
  StreamSpans spans;
  int index;
  std::vector<std::optional<MicroBatchId>> last_gradients;  // [stage]
  std::vector<at::Tensor> sample_ids;                       // [micro-batch]; undefined until used
  std::unique_ptr<OwnSum> replicas;                         // null if no statistics are exchanged
  ActionRunner& runner;
  bool runs_prefix = false;                                           // it runs frozen layers, before its actions
  nn::TransformedWeights prefix_weights{charge_transformed_weights};  // of the frozen layers, while they run
  std::vector<at::Tensor> kept = {};                                  // until the pass is over

  [[nodiscard]] ReplicaId replica() const { return slot.replica; }
  // Keeps a tensor that one stream allocated and another one reads. While any slot of a GPU records, LibTorch does not
  // track such readers (docs/how-to/gpu_check.md).
  void keep(const at::Tensor& tensor) {
    if (runner.is_recording()) kept.push_back(tensor);
  }
};

}  // namespace sluice::pipeline
