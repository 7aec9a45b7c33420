// memory_pool: the memory of one CPU device: hands out blocks, counts them by kind, holds a limit, and keeps freed
// blocks by size for the next request, so that a step that repeats the last one's sizes neither searches nor faults.
// Not here: which pool a thread uses, and LibTorch (device/memory.h).
// What counts, for the limit too: the bytes that were asked for. A block is larger, by its header of 64 bytes and by
// rounding, at most to an eighth more or to 64 bytes; so the process may take that much more than its limits add up to.
// What is kept: a request is rounded up to one of eight sizes per power of two (the last pages of a fresh block are
// never touched) and served by a kept block of that size. Kept blocks and live ones together stay within the limit and
// within the pool's own peak and a half: before a block is fetched from the system, sizes that were not used for
// longest are given back to it. When the system has none, every pool gives back all.
// Threads: any; a block may be freed by another thread than the one that allocated it, and is taken off the pool that
// it came from. One short lock per pool: it has one thread of work, and a neighbour that frees what it was passed.
// Under AddressSanitizer nothing is kept, so that use after free is seen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "device/memory_use.h"

namespace sluice::device {

// Thrown by allocate(), which leaves the pool as it was.
struct MemoryRefusal {
  std::uint64_t asked = 0;  // bytes
  bool by_limit = false;    // else by the system
  MemoryUse use;            // of the pool then
};

class MemoryPool {
 public:
  MemoryPool();
  // Requires: all its blocks are free. Gives the kept ones back.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // `bytes` > 0, on a boundary of 64. Throws MemoryRefusal.
  [[nodiscard]] void* allocate(std::size_t bytes, MemoryKind kind);
  // Of any pool.
  static void free(void* data) noexcept;

  // 0: none. What is over a new limit stays.
  void set_limit(std::uint64_t bytes);
  [[nodiscard]] MemoryUse use() const;
  void reset_peak();
  void give_back_all();

 private:
  struct Block;
  // Freed blocks of one size.
  struct Shelf {
    Block* first = nullptr;
    std::uint64_t last_use = 0;  // by clock_
  };
  static constexpr std::size_t kShelves = 344;  // to 2^48 bytes

  [[nodiscard]] Block* take_kept(std::size_t shelf);                       // null: none
  [[nodiscard]] Block* fetch(std::size_t shelf, std::size_t block_bytes);  // without the lock; null: refused
  // For `more` bytes beside what is live: the kept blocks to give back.
  [[nodiscard]] Block* make_room(std::uint64_t more);
  [[nodiscard]] std::uint64_t most_held() const;  // live and kept
  void charge(std::uint64_t bytes, MemoryKind kind);
  void note_peak();
  void put_back(Block* block) noexcept;
  static void give_back(Block* blocks) noexcept;  // to the system; without the lock

  mutable std::mutex mutex_;
  MemoryUse use_;
  std::uint64_t clock_ = 0;  // counts requests
  std::array<Shelf, kShelves> shelves_;
};

}  // namespace sluice::device
