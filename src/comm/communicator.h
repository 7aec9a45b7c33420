// communicator: collective operations over the processes of a run. All of them call the same operations of one
// communicator in the same order. Not here: which processes there are and how they found each other (processes.h); sums
// over the replicas inside a process (ddp/).
// Threads: one caller at a time per communicator; different communicators side by side.
// Errors: PeerError when a process is lost or does not come within the time limit; the communicator is then of no use.
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

// An operation under way. Copies share it.
class Pending {
 public:
  // end: when the result was there, noted by the backend; null, or 0, where nothing notes it.
  using End = std::shared_ptr<const std::atomic<Nanoseconds>>;
  // wait: false when the token has ended it. queue_wait: the same where null.
  explicit Pending(std::function<bool(const std::stop_token&)> wait, std::function<void()> queue_wait = nullptr,
                   End end = nullptr)
      : wait_(std::move(wait)), queue_wait_(std::move(queue_wait)), end_(std::move(end)) {}

  // Blocks until the result is there; PeerError when it does not come.
  void wait() const { static_cast<void>(wait_({})); }
  // Later work of the calling thread's current stream comes after the result. With NCCL the caller goes on at once, and
  // nothing says whether it comes at all: somebody has to wait() for it, or for a later operation of the communicator.
  void queue_wait() const { queue_wait_ ? queue_wait_() : wait(); }
  // Whether the backend notes when the result was there.
  [[nodiscard]] bool notes_end() const { return end_ != nullptr; }
  // The same, but false as soon as `stop` is requested. That ends the wait alone: no backend can end an operation,
  // which keeps its tensor and goes on until it has its result, a process is lost or the time limit has passed. So long
  // the communicator is not destroyed, and it is of no use for another operation. With NCCL `stop` is not looked at.
  [[nodiscard]] bool wait(const std::stop_token& stop) const { return wait_(stop); }
  // Requires: wait() has returned. When the result was there, which may be long before wait() was called; now, where
  // the backend did not note it.
  [[nodiscard]] Nanoseconds end() const {
    const Nanoseconds noted = end_ ? end_->load() : 0;
    return noted != 0 ? noted : now_ns();
  }

 private:
  std::function<bool(const std::stop_token&)> wait_;
  std::function<void()> queue_wait_;
  End end_;
};

// Is Pending::end() wanted? It costs a callback.
enum class EndTime { kUnknown, kNoted };

class Communicator {
 public:
  // name: for messages. device: of the tensors. limit: longest wait for one operation.
  Communicator(std::string name, device::Device device, c10::intrusive_ptr<c10d::Backend> backend,
               std::chrono::milliseconds limit);
  ~Communicator();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

  // The sum over all processes, in place, the same bits in each. `tensor` is dense and lives until the end. On a GPU it
  // comes after what is queued on the caller's current stream, and is there when wait() returns.
  // With NCCL nothing notes when it ended: Pending::end() is then the moment at which somebody had waited for it.
  [[nodiscard]] Pending all_reduce(const at::Tensor& tensor, EndTime end_time = EndTime::kUnknown) const;
  // `tensor` of process `root` in all; blocks.
  void broadcast(const at::Tensor& tensor, int root) const;
  // The tensors of all processes, by rank, in process `root`; nothing in the others. All of one size; blocks.
  [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& tensor, int root) const;
  // Blocks until every process has come here.
  void barrier() const;

 private:
  std::string name_;
  device::Device device_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::chrono::milliseconds limit_;
};

// The text of process `root` in all; blocks.
[[nodiscard]] std::string broadcast_text(const Communicator& communicator, const std::string& text, int root);
// The texts of all processes, by rank, in process `root`; nothing in the others. Blocks. Memory: the longest text's
// size in each process, times the processes in `root`.
[[nodiscard]] std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& own, int root);

}  // namespace sluice::comm
