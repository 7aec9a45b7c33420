// communicator: collective operations over the processes of a run, which all start the same ones in the same order.
// Threads: one caller at a time per communicator; different communicators may run in parallel.
// Errors: PeerError if a process is lost or does not arrive within the time limit. The communicator is then unusable.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include "core/clock.h"
#include "device/stream.h"

namespace c10d {
class Backend;
}  // namespace c10d

namespace sluice::comm {

class Pending {
 public:
  // Time at which the result was complete, noted by the backend. Null, or 0, if the backend does not note it.
  using End = std::shared_ptr<const std::atomic<Nanoseconds>>;
  // wait: returns false if the token ended it. queue_wait: if null, queue_wait() blocks as wait() does.
  explicit Pending(std::function<bool(const std::stop_token&)> wait, std::function<void()> queue_wait = nullptr,
                   End end = nullptr)
      : wait_(std::move(wait)), queue_wait_(std::move(queue_wait)), end_(std::move(end)) {}

  void wait() const { static_cast<void>(wait_({})); }
  // Orders later work of the caller's current stream after the result. With NCCL it neither blocks nor reports a
  // failure, so the caller must later wait() for this or a later operation of the communicator.
  void queue_wait() const { queue_wait_ ? queue_wait_() : wait(); }
  [[nodiscard]] bool notes_end() const { return end_ != nullptr; }
  // Like wait(), but returns false as soon as `stop` is requested. No backend can cancel an operation: until it
  // completes, fails or times out, keep the communicator alive and start no other operation on it. NCCL ignores `stop`.
  [[nodiscard]] bool wait(const std::stop_token& stop) const { return wait_(stop); }
  // Requires wait(). Time at which the result was complete, or the current time if the backend did not note it.
  [[nodiscard]] Nanoseconds end() const {
    const Nanoseconds noted = end_ ? end_->load() : 0;
    return noted != 0 ? noted : now_ns();
  }

 private:
  std::function<bool(const std::stop_token&)> wait_;
  std::function<void()> queue_wait_;
  End end_;
};

// The messages of one Communicator::exchange().
struct Exchange {
  // Returns when this process's messages have left and the others' are there. Errors: PeerError. With Gloo only abort()
  // or a lost connection ends it.
  std::function<void()> wait;
  std::function<void()> queue_wait;  // NCCL only: orders later work of the caller's current stream behind it
  // From any thread: ends wait() with an error. The communicator is then unusable.
  std::function<void()> abort;
};

// Whether Pending::end() is needed. Noting it costs a callback.
enum class EndTime { kUnknown, kNoted };

class Communicator {
 public:
  // name: used in messages. device: device of the tensors. limit: longest wait for one operation.
  Communicator(std::string name, device::Device device, c10::intrusive_ptr<c10d::Backend> backend,
               std::chrono::milliseconds limit);
  ~Communicator();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  // In-place sum over all processes, with the same bits in each. `tensor` is dense and must live until the end. On a
  // GPU the sum runs after the work on the caller's current stream; it is complete when wait() returns.
  [[nodiscard]] Pending all_reduce(const at::Tensor& tensor, EndTime end_time = EndTime::kUnknown) const;
  // Sends send[p] to process p and receives receive[p] from it; those of this process are not touched. Tensors are
  // dense, may be empty, and must live until the end. Both lists have size() entries. tag: tells apart exchanges that
  // are under way at the same time, which may start in any order, unless by_nccl().
  [[nodiscard]] Exchange exchange(const std::vector<at::Tensor>& send, const std::vector<at::Tensor>& receive,
                                  int tag) const;
  [[nodiscard]] bool by_nccl() const;
  [[nodiscard]] std::chrono::milliseconds limit() const { return limit_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  void broadcast(const at::Tensor& tensor, int root) const;
  // Returns the tensors of all processes, by rank, in process `root`, nothing in others. One size for all; blocks.
  [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& tensor, int root) const;
  void barrier() const;

 private:
  std::string name_;
  device::Device device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::chrono::milliseconds limit_;
};

[[nodiscard]] std::string broadcast_text(const Communicator& communicator, const std::string& text, int root);
// Returns the texts of all processes, by rank, in process `root`, nothing in others; blocks.
[[nodiscard]] std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& own, int root);

}  // namespace sluice::comm
