// memory: what the tensors of each CPU device take, and a limit for it: the allocator of LibTorch's CPU tensors. CPU
// devices share one memory, so a tensor belongs to the device whose work allocated it: the thread says which by a
// MemoryScope, and until it does, the host, which has no limit. It belongs to that device until it is freed, whoever
// holds it then: an activation that a neighbour still needs is charged to the stage that made it, a batch to the host.
// Not here: what GPUs take, which LibTorch's own allocator counts (device.h has their peak; limit_memory() is passed
// on to it); memory that is not a tensor's; LibTorch's intra-op helper threads, whose buffers are the host's.
// Threads: any. Errors: MemoryLimitError at a limit, c10::OutOfMemoryError where the system has no memory; the thread
// and the device stay usable after both.
#pragma once

#include <cstdint>
#include <string>

#include <c10/util/Exception.h>

#include "device/device.h"
#include "device/memory_use.h"

namespace sluice::device {

class MemoryPool;

// Call once, at the start of the process and before there is a tensor: from then on tensors are counted, limits hold,
// and freed blocks are kept for the next request (device/cpu/memory_pool.h).
void count_memory();
[[nodiscard]] bool memory_is_counted();

// Charges what this thread allocates to a device, as `kind`, while it lives; the innermost one counts. On a GPU it does
// nothing.
class MemoryScope {
 public:
  MemoryScope(Device device, MemoryKind kind);
  // Of the same device as before.
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryPool* outer_pool_;
  MemoryKind outer_kind_;
};

// Bytes that the tensors of a device may take at once; 0: no limit. Requires: memory_is_counted() for a CPU device.
void limit_memory(Device device, std::uint64_t bytes);

// Of a GPU, what LibTorch's allocator has: current and peak alone.
[[nodiscard]] MemoryUse memory_use(Device device);
[[nodiscard]] MemoryUse host_memory_use();
// The peak begins anew from what is there now.
void reset_peak_memory(Device device);

// A CPU device's limit leaves no room.
class MemoryLimitError : public c10::OutOfMemoryError {
 public:
  MemoryLimitError(Device device, std::uint64_t asked, const MemoryUse& use);

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }
  [[nodiscard]] const MemoryUse& use() const { return use_; }  // when it was refused

 private:
  Device device_;
  std::uint64_t asked_;
  MemoryUse use_;
};

// "gradients 4.0 MiB, activations 3.5 MiB": what there is, largest first.
[[nodiscard]] std::string describe(const BytesByKind& bytes);

}  // namespace sluice::device
