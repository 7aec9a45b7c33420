// pass_thread: what one worker thread carries through its actions in a pass, and how it tells what it waits for.
// Internal to the pass: pass.cpp and pass_prefix.cpp.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nn/replica_sum.h"
#include "pipeline/pass.h"

namespace sluice::pipeline {

// Another stage failed: this one has nothing to add to the report. It may pass through autograd, which knows how to
// hand on a std::exception alone.
struct StoppedByNeighbour : std::exception {};

static_assert(std::atomic<Standing>::is_always_lock_free);

inline void set_wait(std::atomic<Standing>& standing, Wait wait) {
  standing.store({standing.load(std::memory_order_relaxed).position, wait}, std::memory_order_relaxed);
}

// Says that the slot waits, during its life.
class WaitScope {
 public:
  WaitScope(std::atomic<Standing>& standing, Wait wait) : standing_(standing) { set_wait(standing_, wait); }
  ~WaitScope() { set_wait(standing_, Wait::kNothing); }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  std::atomic<Standing>& standing_;
};

// One replica's way into the exchange of its device.
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

// What a device thread carries through its actions.
struct Pass::DeviceThread {
  const Slot& slot;
  const SlotStreams& streams;
  StreamSpans spans;
  int index;
  std::vector<std::optional<MicroBatchId>> last_gradients;       // [stage]
  std::vector<at::Tensor> sample_ids;                            // [micro-batch]; undefined until a stage asks for them
  std::unique_ptr<OwnSum> replicas;                              // null where nothing is exchanged
  ActionGraphs* graphs = nullptr;                                // null: it runs plainly
  bool runs_prefix = false;                                      // before its actions
  nn::TransformedWeights of_prefix{charge_transformed_weights};  // while it does
  std::vector<at::Tensor> kept = {};                             // by keep()

  [[nodiscard]] ReplicaId replica() const { return slot.replica; }
  // Of what one queue reads and another has memory of. While any slot of a GPU records, LibTorch forgets who reads
  // what there (docs/how-to/gpu_check.md): then it stays until the pass is over.
  void keep(const at::Tensor& tensor) {
    if (graphs != nullptr && graphs->records()) kept.push_back(tensor);
  }
};

}  // namespace sluice::pipeline
