// The CUDA side of the device seam, on LibTorch's streams, events and caching allocator.
#include <algorithm>

#include <ATen/Context.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "device/backend.h"

namespace sluice::device::backend {
namespace {

class CudaEvent final : public EventState {
 public:
  CudaEvent(const c10::cuda::CUDAStream& stream, unsigned int flags) : event_(flags) { event_.record(stream); }
  void block(const c10::cuda::CUDAStream& stream) const { event_.block(stream); }
  void synchronize() const override { event_.synchronize(); }
  [[nodiscard]] Nanoseconds since(const EventState& earlier) const override {
    const auto* begin = dynamic_cast<const CudaEvent*>(&earlier);
    check(begin != nullptr, "a CUDA event's time counts from another CUDA event");
    return static_cast<Nanoseconds>(static_cast<double>(begin->event_.elapsed_time(event_)) * 1e6);
  }

 private:
  mutable at::cuda::CUDAEvent event_;  // block() is not const in ATen, though it leaves the event as it was
};

class CudaStream final : public StreamState {
 public:
  explicit CudaStream(c10::cuda::CUDAStream stream) : stream_(stream) {}

  [[nodiscard]] std::shared_ptr<EventState> record() const override {
    return std::make_shared<CudaEvent>(stream_, cudaEventDisableTiming);
  }
  [[nodiscard]] std::shared_ptr<EventState> record_with_time() const override {
    return std::make_shared<CudaEvent>(stream_, cudaEventDefault);
  }

  void wait(const EventState& event) const override {
    const auto* cuda_event = dynamic_cast<const CudaEvent*>(&event);
    check(cuda_event != nullptr, "a CUDA stream can only wait for a CUDA event");
    cuda_event->block(stream_);
  }

  void synchronize() const override { stream_.synchronize(); }

  // A kernel that counts the processor's cycles: at its highest clock they take as long as asked, else longer.
  void delay(Nanoseconds at_least) const override {
    const auto index = static_cast<int>(stream_.device_index());
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // else the next call of LibTorch would report it
      return;
    }
    const c10::cuda::CUDAStreamGuard guard(stream_);
    at::cuda::sleep(at_least * kilohertz / 1'000'000);
  }

  void keep_alive(const at::Tensor& tensor) const override {
    if (tensor.is_cuda()) c10::cuda::CUDACachingAllocator::recordStream(tensor.storage().data_ptr(), stream_);
  }

  [[nodiscard]] std::uint64_t handle() const override { return reinterpret_cast<std::uintptr_t>(stream_.stream()); }

  [[nodiscard]] std::shared_ptr<void> make_current() const override {
    return std::make_shared<c10::cuda::CUDAStreamGuard>(stream_);
  }

 private:
  c10::cuda::CUDAStream stream_;
};

auto allocated_bytes(int index) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index)).allocated_bytes[kAll];
}

}  // namespace

int cuda_device_count() { return static_cast<int>(c10::cuda::device_count()); }

CudaProperties cuda_properties(int index) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, index);
  if (status != cudaSuccess) {
    throw ConfigError(concat("cuda:", index, " cannot be queried: ", cudaGetErrorString(status),
                             "; check the driver with nvidia-smi"));
  }
  return {properties.name, properties.totalGlobalMem};
}

std::uint64_t cuda_peak_bytes(int index) { return static_cast<std::uint64_t>(allocated_bytes(index).peak); }

std::uint64_t cuda_allocated_bytes(int index) { return static_cast<std::uint64_t>(allocated_bytes(index).current); }

void cuda_reset_peak_bytes(int index) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(index));
}

void cuda_limit_memory(int index, std::uint64_t bytes) {
  at::globalContext().lazyInitDevice(c10::kCUDA);  // there is no allocator before
  const auto all = static_cast<double>(cuda_properties(index).memory_bytes);
  const double share = bytes == 0 ? 1.0 : std::min(static_cast<double>(bytes) / all, 1.0);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(share, static_cast<c10::DeviceIndex>(index));
}

std::shared_ptr<StreamState> make_cuda_stream(int index) {
  return std::make_shared<CudaStream>(c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(index)));
}

std::shared_ptr<StreamState> current_cuda_stream(int index) {
  return std::make_shared<CudaStream>(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)));
}

}  // namespace sluice::device::backend
