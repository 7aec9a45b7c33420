// backend: the CUDA part of src/device, which alone includes this: backend_cuda.cpp and graphs_cuda.cpp, or without a
// CUDA toolkit backend_none.cpp (no devices).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "core/clock.h"

namespace sluice::device {
class GraphSequence;
}

namespace sluice::device::backend {

class EventState {
 public:
  virtual ~EventState() = default;
  virtual void synchronize() const = 0;  // blocks the caller
  // Time from `earlier`, an event of the same device. Requires: both were recorded with a time and are complete.
  [[nodiscard]] virtual Nanoseconds since(const EventState& earlier) const = 0;
};

// A queue of device work. A null pointer stands for a CPU device's stream, whose work is complete when a call returns.
class StreamState {
 public:
  virtual ~StreamState() = default;
  [[nodiscard]] virtual std::shared_ptr<EventState> record() const = 0;
  [[nodiscard]] virtual std::shared_ptr<EventState> record_with_time() const = 0;
  virtual void wait(const EventState& event) const = 0;
  virtual void synchronize() const = 0;
  virtual void delay(Nanoseconds at_least) const = 0;
  virtual void keep_alive(const at::Tensor& tensor) const = 0;
  [[nodiscard]] virtual std::uint64_t handle() const = 0;
  // Makes this stream current on the calling thread until the returned object is destroyed.
  [[nodiscard]] virtual std::shared_ptr<void> make_current() const = 0;
};

struct CudaProperties {
  std::string name;
  std::uint64_t memory_bytes = 0;
};

int cuda_device_count();
CudaProperties cuda_properties(int index);
std::uint64_t cuda_peak_bytes(int index);  // peak bytes handed out by LibTorch's allocator
std::uint64_t cuda_allocated_bytes(int index);
void cuda_reset_peak_bytes(int index);
// Limits LibTorch's allocator on the GPU, cached blocks included; 0: no limit.
void cuda_limit_memory(int index, std::uint64_t bytes);
enum class Urgency { kNormal, kHigh };
std::shared_ptr<StreamState> make_cuda_stream(int index, Urgency urgency);
std::shared_ptr<StreamState> current_cuda_stream(int index);
std::unique_ptr<GraphSequence> make_cuda_graphs(int index);

}  // namespace sluice::device::backend
