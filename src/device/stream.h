// stream: a queue of work on a device, points in it, and the one way a tensor crosses from one queue to another.
// On a CPU device work is done when the call returns: streams and events are empty and cost a branch.
// A GPU has queues for computing, for copies and for sums over replicas (docs/threads.md lists them). What one of them
// needs of another it waits for by an event, and memory that it reads of another is kept alive for it.
// Threads: a Stream may be used from any thread; its work runs in the order of the calls.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "core/recorder.h"
#include "device/backend.h"
#include "device/device.h"

namespace sluice::device {

// Everything that was queued on a stream when it was recorded. An empty Event is already over.
class Event {
 public:
  Event() = default;
  void synchronize() const;  // the caller waits until it is over

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<backend::EventState> state) : state_(std::move(state)) {}
  std::shared_ptr<backend::EventState> state_;
};

// A point in a stream's work whose time is wanted. On a CPU device it is read from the clock at once; on a GPU an event
// keeps it, and it is known when the event is over: nothing waits for it meanwhile.
class Moment {
 public:
  // On the host's clock (core/clock.h). Requires: on a GPU this moment and `base` are over, and `base` was at
  // `base_time`.
  [[nodiscard]] Nanoseconds time(const Moment& base, Nanoseconds base_time) const;
  [[nodiscard]] bool is_known() const { return !state_; }
  [[nodiscard]] Nanoseconds known_time() const { return host_time_; }

 private:
  friend class Stream;
  Nanoseconds host_time_ = 0;
  std::shared_ptr<backend::EventState> state_;  // null on a CPU device
};

class Stream {
 public:
  // A new queue on `device`, for computing.
  [[nodiscard]] static Stream make(Device device);
  // A new queue for what goes on beside it: copies, sums over replicas. LibTorch has 32 of each kind a GPU and hands
  // them out in turn, so it is never one of those for computing; of the device's choices its work goes first.
  [[nodiscard]] static Stream make_beside(Device device);
  // The queue that LibTorch calls of the calling thread use on `device`.
  [[nodiscard]] static Stream current(Device device);

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] StreamName name() const;  // by which a GPU profiler tells it
  [[nodiscard]] Event record() const;
  [[nodiscard]] Moment moment() const;
  // Later work of this stream waits. The caller does not, except on a CPU device, whose work is the caller itself.
  void wait(const Event& event) const;
  void synchronize() const;  // the caller waits until all queued work is over
  // Keeps a GPU's queue busy for at least so long, so that what is queued meanwhile waits and then runs without gaps;
  // at most a second. Nothing on a CPU device, and where the GPU does not tell its clock.
  void delay(Nanoseconds at_least) const;
  // The memory of `tensor`, allocated on another stream, is not reused before this stream's queued work is over.
  void keep_alive(const at::Tensor& tensor) const;

 private:
  friend class StreamGuard;
  Stream(Device device, std::shared_ptr<backend::StreamState> state) : device_(device), state_(std::move(state)) {}
  Device device_;
  std::shared_ptr<backend::StreamState> state_;
};

// Makes a stream (and its device) the current one of this thread while it lives.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);

 private:
  std::shared_ptr<void> guard_;
};

// The queues of a copy, which runs when both have come to it: the one on the source's device, the other on the
// target's. Two copies with a queue in common go one after the other.
struct CopyQueues {
  const Stream& from;
  const Stream& into;
};

// `tensor`, valid once `ready` is over, as a tensor on the device of `to`, usable by work queued on `to` from now on.
// In the same memory it is the same storage (by pointer); else a copy on `over`, ordered after `ready` and before later
// work of `to`: what is on `to` already neither waits for it nor holds it up. Keeps the source and the copy alive for
// that long. The caller waits where the copy is read or written by the host: from a GPU to the CPU, and to a GPU where
// the memory is not pinned.
[[nodiscard]] at::Tensor transfer(const at::Tensor& tensor, const Event& ready, const Stream& to,
                                  const CopyQueues& over);
// The same on `to` itself and the source's current stream: behind all that is on them.
[[nodiscard]] at::Tensor transfer(const at::Tensor& tensor, const Event& ready, const Stream& to);

}  // namespace sluice::device
