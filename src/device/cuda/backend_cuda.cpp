#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include <ATen/Context.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/check.h"
#include "core/error.h"
#include "device/backend.h"
#include "device/free_list.h"

namespace sluice::device::backend {
namespace {

// Reuses CUDA events, because creating or destroying one is a driver call that may block other threads. Re-recording an
// event does not affect streams that already wait for its earlier record (cudaEventRecord).
class EventPool {
 public:
  enum class Kind { kWithoutTime, kWithTime };
  using Event = c10::cuda::CUDAEvent;

  EventPool() : free_(static_cast<std::size_t>(std::max(cuda_device_count(), 0))) {}

  [[nodiscard]] std::unique_ptr<Event> take(int device, Kind kind) {
    return of(device, kind).take([kind] {
      return std::make_unique<Event>(kind == Kind::kWithTime ? cudaEventDefault : cudaEventDisableTiming);
    });
  }
  void give_back(std::unique_ptr<Event> event, Kind kind) {
    const int device = event->device_index();
    of(device, kind).give_back(std::move(event));
  }

  // Never destroyed, because events may be returned until the process ends.
  static EventPool& instance() {
    static auto* const pool = new EventPool();
    return *pool;
  }

 private:
  FreeList<Event>& of(int device, Kind kind) {
    return free_.at(static_cast<std::size_t>(device)).at(static_cast<std::size_t>(kind));
  }
  std::vector<std::array<FreeList<Event>, 2>> free_;
};

class CudaEvent final : public EventState {
 public:
  CudaEvent(const c10::cuda::CUDAStream& stream, EventPool::Kind kind)
      : kind_(kind), event_(EventPool::instance().take(stream.device_index(), kind)) {
    event_->record(stream);
  }
  ~CudaEvent() override {
    try {
      EventPool::instance().give_back(std::move(event_), kind_);
    } catch (const std::exception&) {  // no memory to extend the list: the event is destroyed instead
    }
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void block(const c10::cuda::CUDAStream& stream) const { event_->block(stream); }
  void synchronize() const override { event_->synchronize(); }
  [[nodiscard]] Nanoseconds since(const EventState& earlier) const override {
    const auto* begin = dynamic_cast<const CudaEvent*>(&earlier);
    check(begin != nullptr, "a CUDA event as the start of a CUDA event's time");
    return static_cast<Nanoseconds>(static_cast<double>(begin->event_->elapsed_time(*event_)) * 1e6);
  }

 private:
  EventPool::Kind kind_;
  std::unique_ptr<EventPool::Event> event_;
};

class CudaStream final : public StreamState {
 public:
  explicit CudaStream(c10::cuda::CUDAStream stream) : stream_(stream) {}

  [[nodiscard]] std::shared_ptr<EventState> record() const override {
    return std::make_shared<CudaEvent>(stream_, EventPool::Kind::kWithoutTime);
  }
  [[nodiscard]] std::shared_ptr<EventState> record_with_time() const override {
    return std::make_shared<CudaEvent>(stream_, EventPool::Kind::kWithTime);
  }

  void wait(const EventState& event) const override {
    const auto* cuda_event = dynamic_cast<const CudaEvent*>(&event);
    check(cuda_event != nullptr, "a CUDA event for a CUDA stream to wait for");
    cuda_event->block(stream_);
  }

  void synchronize() const override { stream_.synchronize(); }

  // Runs a kernel that counts clock cycles: at the highest clock rate it takes the requested time, otherwise longer.
  void delay(Nanoseconds at_least) const override {
    const auto index = static_cast<int>(stream_.device_index());
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, index) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // clears the error, which the next LibTorch call would report
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
    throw ConfigError("cuda:", index, " cannot be queried: ", cudaGetErrorString(status),
                      "; check the driver with nvidia-smi");
  }
  return {properties.name, properties.totalGlobalMem};
}

std::uint64_t cuda_peak_bytes(int index) { return static_cast<std::uint64_t>(allocated_bytes(index).peak); }

std::uint64_t cuda_allocated_bytes(int index) { return static_cast<std::uint64_t>(allocated_bytes(index).current); }

void cuda_reset_peak_bytes(int index) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(index));
}

void cuda_limit_memory(int index, std::uint64_t bytes) {
  at::globalContext().lazyInitDevice(c10::kCUDA);  // creates the allocator
  const auto all = static_cast<double>(cuda_properties(index).memory_bytes);
  const double share = bytes == 0 ? 1.0 : std::min(static_cast<double>(bytes) / all, 1.0);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(share, static_cast<c10::DeviceIndex>(index));
}

std::shared_ptr<StreamState> make_cuda_stream(int index, Urgency urgency) {
  const bool goes_first = urgency == Urgency::kHigh;
  return std::make_shared<CudaStream>(c10::cuda::getStreamFromPool(goes_first, static_cast<c10::DeviceIndex>(index)));
}

std::shared_ptr<StreamState> current_cuda_stream(int index) {
  return std::make_shared<CudaStream>(c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)));
}

}  // namespace sluice::device::backend
