#include "device/memory.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"
#include "device/backend.h"
#include "device/cpu/memory_pool.h"

namespace sluice::device {
namespace {

constexpr int kHost = -1;

// The pool of each CPU device by index. Never destroyed, because tensors may outlive static objects.
class PoolTable {
 public:
  MemoryPool& of(int index) {
    const std::scoped_lock lock(mutex_);
    auto& pool = pools_[index];
    if (!pool) pool = std::make_unique<MemoryPool>();
    return *pool;
  }
  int index_of(const MemoryPool* pool) {
    const std::scoped_lock lock(mutex_);
    const auto is_it = [&](const auto& entry) { return entry.second.get() == pool; };
    return std::ranges::find_if(pools_, is_it)->first;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::unique_ptr<MemoryPool>> pools_;
};

PoolTable& pool_table() {
  static auto* const kTable = new PoolTable;
  return *kTable;
}

MemoryPool& pool_of(Device device) {
  check(device.kind == DeviceKind::kCpu, "a CPU device for a memory pool");
  return pool_table().of(device.index);
}

struct Charge {
  MemoryPool* pool = nullptr;  // null: the host
  MemoryKind kind = MemoryKind::kActivations;
};
constinit thread_local Charge charge;

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(MemoryPool& host) : host_(host) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : allocate_block(bytes);
    return {data, data, &MemoryPool::free, c10::Device(c10::kCPU)};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &MemoryPool::free; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

 private:
  [[nodiscard]] void* allocate_block(std::size_t bytes) const {
    MemoryPool& pool = charge.pool != nullptr ? *charge.pool : host_;
    try {
      return pool.allocate(bytes, charge.kind);
    } catch (const MemoryRefusal& refusal) {
      if (refusal.by_limit)
        throw MemoryLimitError({DeviceKind::kCpu, pool_table().index_of(&pool)}, refusal.asked, refusal.use);
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                                  concat("can't allocate memory: you tried to allocate ", bytes, " bytes."));
    }
  }

  MemoryPool& host_;
};

std::atomic<bool> is_counted = false;

}  // namespace

void count_memory() {
  static auto* const kAllocator = new CountingAllocator(pool_table().of(kHost));
  constexpr std::uint8_t kPriority = 200;  // higher than LibTorch's own allocator
  c10::SetCPUAllocator(kAllocator, kPriority);
  is_counted = true;
}

bool memory_is_counted() { return is_counted; }

MemoryScope::MemoryScope(Device device, MemoryKind kind) : MemoryScope(kind) {
  if (device.kind == DeviceKind::kCpu) charge.pool = &pool_of(device);
}

MemoryScope::MemoryScope(MemoryKind kind) : outer_pool_(charge.pool), outer_kind_(std::exchange(charge.kind, kind)) {}

MemoryScope::~MemoryScope() { charge = {outer_pool_, outer_kind_}; }

void limit_memory(Device device, std::uint64_t bytes) {
  if (device.kind == DeviceKind::kCuda) return backend::cuda_limit_memory(device.index, bytes);
  check(memory_is_counted() || bytes == 0, "a call of count_memory() at process start before a limit of a CPU device");
  pool_of(device).set_limit(bytes);
}

MemoryUse memory_use(Device device) {
  if (device.kind == DeviceKind::kCpu) return pool_of(device).use();
  return {.current = backend::cuda_allocated_bytes(device.index), .peak = backend::cuda_peak_bytes(device.index)};
}

MemoryUse host_memory_use() { return pool_table().of(kHost).use(); }

void reset_peak_memory(Device device) {
  if (device.kind == DeviceKind::kCuda) return backend::cuda_reset_peak_bytes(device.index);
  pool_of(device).reset_peak();
}

MemoryLimitError::MemoryLimitError(Device device, std::uint64_t asked, const MemoryUse& use)
    : c10::OutOfMemoryError({"allocate", "device/memory", 0},
                            concat("out of memory on ", to_string(device), ": no room for ", human_bytes(asked),
                                   ": device.memory_limit is ", human_bytes(use.limit), ", of which ",
                                   human_bytes(use.current), " is in use")),
      device_(device),
      asked_(asked),
      use_(use) {}

std::string describe(const BytesByKind& bytes) {
  std::vector<MemoryKind> kinds(kMemoryKinds.begin(), kMemoryKinds.end());
  std::erase_if(kinds, [&](MemoryKind kind) { return bytes[kind] == 0; });
  std::ranges::sort(kinds, std::greater<>(), [&](MemoryKind kind) { return bytes[kind]; });
  std::vector<std::string> words;
  for (const MemoryKind kind : kinds) words.push_back(concat(to_word(kind), " ", human_bytes(bytes[kind])));
  return words.empty() ? "nothing" : join(words, ", ");
}

}  // namespace sluice::device
