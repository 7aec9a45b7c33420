// memory: counts and limits the memory of each CPU device, as the allocator of LibTorch's CPU tensors. The MemoryScope
// of the thread determines the device of each allocation; without one it is the host, which has no limit. A tensor
// stays charged to that device until it is freed. Buffers of LibTorch's intra-op threads count for the host; memory
// outside of tensors is not counted. limit_memory() of a GPU is passed to LibTorch's allocator.
// Threads: any. Errors: MemoryLimitError at a limit, c10::OutOfMemoryError if the system has no memory; thread and
// device stay usable.
#pragma once

#include <cstdint>
#include <string>

#include <c10/util/Exception.h>

#include "device/device.h"
#include "device/memory_use.h"

namespace sluice::device {

class MemoryPool;

// Enables counting, limits and caching (device/cpu/memory_pool.h). Call once, before any tensor exists.
void count_memory();
[[nodiscard]] bool memory_is_counted();

// Charges this thread's allocations to a CPU device, as `kind`; the innermost scope counts.
class MemoryScope {
 public:
  MemoryScope(Device device, MemoryKind kind);
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryPool* outer_pool_;
  MemoryKind outer_kind_;
};

// Limits the bytes of a device's tensors; 0: no limit. Requires: memory_is_counted() for a CPU device.
void limit_memory(Device device, std::uint64_t bytes);

// For a GPU, only `current` and `peak` of LibTorch's allocator.
[[nodiscard]] MemoryUse memory_use(Device device);
[[nodiscard]] MemoryUse host_memory_use();
void reset_peak_memory(Device device);

class MemoryLimitError : public c10::OutOfMemoryError {
 public:
  MemoryLimitError(Device device, std::uint64_t asked, const MemoryUse& use);

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }
  [[nodiscard]] const MemoryUse& use() const { return use_; }

 private:
  Device device_;
  std::uint64_t asked_;
  MemoryUse use_;
};

// "gradients 4.0 MiB, activations 3.5 MiB", largest first.
[[nodiscard]] std::string describe(const BytesByKind& bytes);

}  // namespace sluice::device
