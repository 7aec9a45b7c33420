// backend: what the CUDA side of the device seam provides. Siblings define these symbols and CMake picks:
// cuda/backend_cuda.cpp and cuda/graphs_cuda.cpp (with a toolkit) or cuda/backend_none.cpp (without: no devices). Only
// src/device includes this.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "core/clock.h"

namespace sluice::device {
class GraphSequence;  // device/graph.h
}

namespace sluice::device::backend {

// A point in a stream's queue of work.
class EventState {
 public:
  virtual ~EventState() = default;
  virtual void synchronize() const = 0;  // the caller waits
  // From another event of the device to this one; both were recorded with a time and are over.
  [[nodiscard]] virtual Nanoseconds since(const EventState& earlier) const = 0;
};

// A queue of device work. Null pointers stand for a CPU device's stream, whose work is done when a call returns.
class StreamState {
 public:
  virtual ~StreamState() = default;
  [[nodiscard]] virtual std::shared_ptr<EventState> record() const = 0;
  [[nodiscard]] virtual std::shared_ptr<EventState> record_with_time() const = 0;
  virtual void wait(const EventState& event) const = 0;
  virtual void synchronize() const = 0;
  virtual void delay(Nanoseconds at_least) const = 0;
  virtual void keep_alive(const at::Tensor& tensor) const = 0;
  [[nodiscard]] virtual std::uint64_t handle() const = 0;  // the cudaStream_t
  // Makes this stream current on the calling thread until the returned object dies.
  [[nodiscard]] virtual std::shared_ptr<void> make_current() const = 0;
};

struct CudaProperties {
  std::string name;
  std::uint64_t memory_bytes = 0;
};

int cuda_device_count();
CudaProperties cuda_properties(int index);
std::uint64_t cuda_peak_bytes(int index);  // most that LibTorch's allocator has handed out at once
std::uint64_t cuda_allocated_bytes(int index);
void cuda_reset_peak_bytes(int index);
// What LibTorch's allocator may take of the GPU, its cached blocks included; 0: all of it.
void cuda_limit_memory(int index, std::uint64_t bytes);
enum class Urgency { kNormal, kHigh };  // whose work the GPU takes first
std::shared_ptr<StreamState> make_cuda_stream(int index, Urgency urgency);
// The stream that is current on the calling thread (an autograd thread, for example).
std::shared_ptr<StreamState> current_cuda_stream(int index);
std::unique_ptr<GraphSequence> make_cuda_graphs(int index);

}  // namespace sluice::device::backend
