#include "device/cpu/memory_pool.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <set>
#include <utility>

#include "core/sanitizers.h"

namespace sluice::device {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a cache line, also the widest vector load
constexpr bool kKeepsBlocks = !kHasAddressSanitizer;
// Smallest bound for cached blocks, so that the bound does not slow small runs down.
constexpr std::uint64_t kLeastSpare = std::uint64_t{64} << 20;
constexpr std::size_t kLargestBlock = std::size_t{1} << 47;

struct SizeClass {
  std::size_t shelf;
  std::size_t bytes;
};

// Sizes are multiples of 64 up to 1024, then eight sizes per power of two.
SizeClass size_class_of(std::size_t bytes) {
  constexpr int kSmallestShift = 6, kStepBits = 3;
  const int shift = std::max(static_cast<int>(std::bit_width(bytes - 1)) - kStepBits - 1, kSmallestShift);
  const std::size_t step = (bytes - 1) >> shift;
  return {(static_cast<std::size_t>(shift - kSmallestShift) << kStepBits) + step, (step + 1) << shift};
}

// All pools of the process. Never destroyed, because tensors may outlive static objects.
struct Pools {
  std::mutex mutex;
  std::set<MemoryPool*> all;
};

Pools& pools() {
  static auto* const kPools = new Pools;
  return *kPools;
}

void give_back_all_pools() {
  Pools& registered = pools();
  const std::scoped_lock lock(registered.mutex);
  for (MemoryPool* pool : registered.all) pool->give_back_all();
}

}  // namespace

struct alignas(kLine) MemoryPool::Block {
  MemoryPool* owner;
  std::size_t block_bytes;
  std::size_t shelf;
  std::uint64_t bytes;
  Block* next;
  MemoryKind kind;

  [[nodiscard]] void* data() { return this + 1; }
  [[nodiscard]] static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
};

std::string_view to_word(MemoryKind kind) {
  constexpr std::array<std::string_view, kMemoryKinds.size()> kWords{"parameters", "gradients", "optimizer",
                                                                     "activations", "transformed_weights"};
  return kWords.at(static_cast<std::size_t>(kind));
}

MemoryPool::MemoryPool() {
  static_assert(sizeof(Block) == kLine);
  Pools& registered = pools();
  const std::scoped_lock lock(registered.mutex);
  registered.all.insert(this);
}

MemoryPool::~MemoryPool() {
  {
    Pools& registered = pools();
    const std::scoped_lock lock(registered.mutex);
    registered.all.erase(this);
  }
  give_back_all();
}

void* MemoryPool::allocate(std::size_t bytes, MemoryKind kind) {
  if (bytes > kLargestBlock) throw MemoryRefusal{bytes, false, use()};
  const SizeClass size = size_class_of(bytes + sizeof(Block));
  Block* block = nullptr;
  Block* surplus = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    // The limit applies to requested bytes, not to block sizes.
    if (use_.limit > 0 && bytes > use_.limit - std::min(use_.current, use_.limit))
      throw MemoryRefusal{bytes, true, use_};
    charge(bytes, kind);
    block = take_kept(size.shelf);
    if (block != nullptr) {
      note_peak();
    } else {
      ++use_.fetches;
      surplus = make_room(size.bytes - bytes);
    }
  }
  if (block == nullptr) {
    give_back(surplus);
    block = fetch(size.shelf, size.bytes);
    const std::scoped_lock lock(mutex_);
    if (block == nullptr) {
      charge(-std::uint64_t{bytes}, kind);
      throw MemoryRefusal{bytes, false, use_};
    }
    note_peak();
  }
  block->bytes = bytes;
  block->kind = kind;
  return block->data();
}

void MemoryPool::free(void* data) noexcept {
  if (data == nullptr) return;
  Block* const block = Block::of(data);
  block->owner->put_back(block);
}

MemoryPool::Block* MemoryPool::take_kept(std::size_t shelf) {
  Shelf& of_size = shelves_[shelf];
  of_size.last_use = ++clock_;
  Block* const block = of_size.first;
  if (block == nullptr) return nullptr;
  of_size.first = block->next;
  use_.cached -= block->block_bytes;
  return block;
}

MemoryPool::Block* MemoryPool::fetch(std::size_t shelf, std::size_t block_bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, kLine, block_bytes) != 0) {
    give_back_all_pools();
    ::malloc_trim(0);
    if (::posix_memalign(&memory, kLine, block_bytes) != 0) return nullptr;
  }
  return new (memory) Block{this, block_bytes, shelf, 0, nullptr, MemoryKind::kActivations};
}

std::uint64_t MemoryPool::most_held() const {
  if (!kKeepsBlocks) return 0;
  const std::uint64_t peak = std::max(use_.peak, use_.current);
  const std::uint64_t most = peak + std::max(peak / 2, kLeastSpare);
  return use_.limit > 0 ? std::min(most, use_.limit) : most;
}

MemoryPool::Block* MemoryPool::make_room(std::uint64_t more) {
  Block* surplus = nullptr;
  const std::uint64_t most = most_held();
  while (use_.cached > 0 && use_.current + use_.cached + more > most) {
    Shelf* oldest = nullptr;
    for (Shelf& shelf : shelves_) {
      if (shelf.first != nullptr && (oldest == nullptr || shelf.last_use < oldest->last_use)) oldest = &shelf;
    }
    while (oldest->first != nullptr && use_.current + use_.cached + more > most) {
      Block* const block = std::exchange(oldest->first, oldest->first->next);
      use_.cached -= block->block_bytes;
      block->next = std::exchange(surplus, block);
    }
  }
  return surplus;
}

// Unsigned arithmetic wraps around, so a negated size subtracts.
void MemoryPool::charge(std::uint64_t bytes, MemoryKind kind) {
  use_.current += bytes;
  use_.by_kind[kind] += bytes;
}

void MemoryPool::note_peak() {
  if (use_.current <= use_.peak) return;
  use_.peak = use_.current;
  use_.by_kind_at_peak = use_.by_kind;
}

void MemoryPool::put_back(Block* block) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    charge(-block->bytes, block->kind);
    if (use_.current + use_.cached + block->block_bytes <= most_held()) {
      Shelf& shelf = shelves_[block->shelf];
      shelf.last_use = clock_;
      block->next = std::exchange(shelf.first, block);
      use_.cached += block->block_bytes;
      return;
    }
  }
  block->next = nullptr;
  give_back(block);
}

void MemoryPool::give_back(Block* blocks) noexcept {
  while (blocks != nullptr) std::free(std::exchange(blocks, blocks->next));
}

void MemoryPool::set_limit(std::uint64_t bytes) {
  Block* surplus = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    use_.limit = bytes;
    surplus = make_room(0);
  }
  give_back(surplus);
}

MemoryUse MemoryPool::use() const {
  const std::scoped_lock lock(mutex_);
  return use_;
}

void MemoryPool::reset_peak() {
  const std::scoped_lock lock(mutex_);
  use_.peak = use_.current;
  use_.by_kind_at_peak = use_.by_kind;
}

void MemoryPool::give_back_all() {
  Block* all = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    for (Shelf& shelf : shelves_) {
      while (shelf.first != nullptr) {
        Block* const block = std::exchange(shelf.first, shelf.first->next);
        block->next = std::exchange(all, block);
      }
    }
    use_.cached = 0;
  }
  give_back(all);
}

}  // namespace sluice::device
