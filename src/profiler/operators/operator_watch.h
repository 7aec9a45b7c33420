// operator_watch: sees the operators that run, by callbacks of LibTorch's (at::RecordFunction), and adds up what those
// of each layer did: ATen's, our own kernels (nn/own_operator.h), and autograd's engine as one, "autograd". A call
// counts for the layer that its thread is at; in autograd for that of the forward pass which made the function, as its
// number tells. Calls outside of enter() and leave() are ignored. Watching costs 0.65 us a call (docs/results/performance.md):
// nearly half is this class's work, which is left out of all times; the rest is LibTorch's calling back, which is in
// them. While no object of this class lives nothing of it is called. CPU only: on a GPU a call ends when its work is
// queued.
//
// Threads: one object at a time; made, destroyed and take() while no thread is at a layer; the rest from any thread,
// each for itself. Errors: none.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/clock.h"
#include "profiler/layer_log.h"
#include "profiler/operator_sums.h"

namespace sluice::operators {

struct ThreadCalls;

class OperatorWatch {
 public:
  enum class Threads : std::uint8_t { kThisOne, kAll };
  using Clock = Nanoseconds (*)();

  explicit OperatorWatch(Threads threads, Clock clock = &now_ns);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  // Where the calling thread is.
  void enter(int layer, profiler::Pass pass);
  void enter_nowhere();
  void leave();
  // Of the calling thread: within a forward pass, the layer that makes autograd's functions from now on.
  void enter_layer(int layer);
  void leave_layer();

  // Of all threads, since it was last asked.
  [[nodiscard]] profiler::OperatorSums take();
  // What watching took, of the calling thread, since it was last asked; within enter() and leave().
  [[nodiscard]] Nanoseconds take_cost();

 private:
  friend struct Observer;
  [[nodiscard]] ThreadCalls& of_this_thread();

  Clock clock_;
  std::uint64_t id_;
  std::uint64_t callback_;  // LibTorch's handle of it
  std::mutex mutex_;
  std::deque<std::unique_ptr<ThreadCalls>> threads_;  // with the mutex
};

}  // namespace sluice::operators
