// operator_watch: observes operators with LibTorch's callbacks (at::RecordFunction) and sums them by layer. A call
// counts for its thread's layer; in autograd, for the layer whose forward pass made the function. CPU only, because on
// a GPU a call ends when its work is queued.
// An observed call costs 0.65 us; nearly half is this class's work, which is excluded from all times. Threads: one
// object at a time; constructor, destructor and take() while no thread is in a layer; the rest per thread.
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

  void enter(int layer, profiler::Pass pass);
  void enter_nowhere();
  void leave();
  // Within a forward pass of the calling thread: the layer that makes autograd's functions from now on.
  void enter_layer(int layer);
  void leave_layer();

  // Sums of all threads since the last call.
  [[nodiscard]] profiler::OperatorSums take();
  [[nodiscard]] Nanoseconds take_cost();

 private:
  friend struct Observer;
  [[nodiscard]] ThreadCalls& of_this_thread();

  Clock clock_;
  std::uint64_t id_;
  std::uint64_t callback_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<ThreadCalls>> threads_;
};

}  // namespace sluice::operators
