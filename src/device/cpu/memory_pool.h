// memory_pool: the memory of one CPU device: allocates blocks, counts bytes by kind, enforces a limit and caches freed
// blocks by size, so that a repeated step neither searches nor page-faults. Requested bytes count, also against the
// limit. A block needs more: a 64-byte header, and rounding by at most an eighth or 64 bytes.
// A request reuses a cached block of its size class. Live and cached blocks together stay within the limit and within
// 1.5 times the pool's peak: the pool first returns the least recently used sizes to the system. If the system has no
// memory, all pools return their cached blocks.
// Threads: any; a freed block returns to its own pool. Under AddressSanitizer nothing is cached, so that use after free
// is detected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "device/memory_use.h"

namespace sluice::device {

// Thrown by allocate(), which leaves the pool unchanged.
struct MemoryRefusal {
  std::uint64_t asked = 0;
  bool by_limit = false;  // false: the system has no memory
  MemoryUse use;
};

class MemoryPool {
 public:
  MemoryPool();
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Returns memory aligned to 64 bytes. Requires: `bytes` > 0. Throws MemoryRefusal.
  [[nodiscard]] void* allocate(std::size_t bytes, MemoryKind kind);
  static void free(void* data) noexcept;

  // 0: no limit. Bytes above a new limit stay allocated.
  void set_limit(std::uint64_t bytes);
  [[nodiscard]] MemoryUse use() const;
  void reset_peak();
  void give_back_all();

 private:
  struct Block;
  struct Shelf {
    Block* first = nullptr;
    std::uint64_t last_use = 0;
  };
  static constexpr std::size_t kShelves = 344;  // sizes up to 2^48 bytes

  [[nodiscard]] Block* take_kept(std::size_t shelf);
  [[nodiscard]] Block* fetch(std::size_t shelf, std::size_t block_bytes);  // call without the lock; null if refused
  // Returns the cached blocks to release before `more` bytes are added to the live ones.
  [[nodiscard]] Block* make_room(std::uint64_t more);
  [[nodiscard]] std::uint64_t most_held() const;
  void charge(std::uint64_t bytes, MemoryKind kind);
  void note_peak();
  void put_back(Block* block) noexcept;
  static void give_back(Block* blocks) noexcept;  // returns blocks to the system; call without the lock

  mutable std::mutex mutex_;
  MemoryUse use_;
  std::uint64_t clock_ = 0;  // number of requests
  std::array<Shelf, kShelves> shelves_;
};

}  // namespace sluice::device
