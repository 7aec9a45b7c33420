// stream: a queue of work on a device, points in it, and the only way to pass a tensor between queues. On a CPU device
// work is complete when the call returns; streams and events are empty. A GPU has queues for computing, for copies and
// for all-reduces (docs/explanation/threads.md). Threads: any; a stream's work runs in the order of the calls.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "core/recorder.h"
#include "device/backend.h"
#include "device/device.h"

namespace sluice::device {

// All work that was queued on a stream at the time of recording. An empty Event is complete.
class Event {
 public:
  Event() = default;
  void synchronize() const;

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<backend::EventState> state) : state_(std::move(state)) {}
  std::shared_ptr<backend::EventState> state_;
};

// A time in a stream's work. On a GPU an event stores it, so it is known only when the event is complete.
class Moment {
 public:
  // Returns the time on the host's clock (core/clock.h). Requires, on a GPU: this moment and `base` are complete, and
  // `base` was at `base_time`.
  [[nodiscard]] Nanoseconds time(const Moment& base, Nanoseconds base_time) const;
  [[nodiscard]] bool is_known() const { return !state_; }
  [[nodiscard]] Nanoseconds known_time() const { return host_time_; }

 private:
  friend class Stream;
  Nanoseconds host_time_ = 0;
  std::shared_ptr<backend::EventState> state_;
};

class Stream {
 public:
  [[nodiscard]] static Stream make(Device device);
  // Creates a queue with high priority. LibTorch reuses its 32 streams of each priority, so it is never a compute
  // queue.
  [[nodiscard]] static Stream make_beside(Device device);
  [[nodiscard]] static Stream current(Device device);

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] StreamName name() const;  // identifies the queue for a GPU profiler
  [[nodiscard]] Event record() const;
  [[nodiscard]] Moment moment() const;
  // Makes later work of this stream wait. Blocks the caller only on a CPU device.
  void wait(const Event& event) const;
  void synchronize() const;
  // Keeps a GPU's queue busy for at least this time (up to a second), so that work queued meanwhile then runs without
  // gaps. No effect on a CPU device, or if the GPU does not report its clock rate.
  void delay(Nanoseconds at_least) const;
  // Prevents reuse of `tensor`'s memory, which another stream allocated, until this stream's queued work is complete.
  void keep_alive(const at::Tensor& tensor) const;

 private:
  friend class StreamGuard;
  Stream(Device device, std::shared_ptr<backend::StreamState> state) : device_(device), state_(std::move(state)) {}
  Device device_;
  std::shared_ptr<backend::StreamState> state_;
};

class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);

 private:
  std::shared_ptr<void> guard_;
};

// The queues of a copy on both devices. Copies that share a queue run one after the other.
struct CopyQueues {
  const Stream& from;
  const Stream& into;
};

// Returns `tensor`, valid when `ready` is complete, on the device of `to`, for work queued on `to` from now on. In the
// same memory the result shares the storage. Otherwise it is a copy on `over`, between `ready` and that work. Keeps the
// source and the copy alive long enough. Blocks the caller for a copy to the CPU or from memory that is not pinned.
[[nodiscard]] at::Tensor transfer(const at::Tensor& tensor, const Event& ready, const Stream& to,
                                  const CopyQueues& over);
// Copies on `to` and the source's current stream, after all their queued work.
[[nodiscard]] at::Tensor transfer(const at::Tensor& tensor, const Event& ready, const Stream& to);

}  // namespace sluice::device
