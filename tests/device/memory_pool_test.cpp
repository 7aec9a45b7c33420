// The memory of a CPU device without LibTorch: what it counts, keeps and refuses. Also runs under TSan and ASan.
#include "device/cpu/memory_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "core/sanitizers.h"

namespace sluice::device {
namespace {

constexpr bool kKeepsBlocks = !kHasAddressSanitizer;
constexpr std::size_t kMiB = std::size_t{1} << 20;

void* allocate(MemoryPool& pool, std::size_t bytes) { return pool.allocate(bytes, MemoryKind::kActivations); }

std::optional<MemoryRefusal> refusal_of(MemoryPool& pool, std::size_t bytes) {
  try {
    MemoryPool::free(allocate(pool, bytes));
  } catch (const MemoryRefusal& refusal) {
    return refusal;
  }
  return std::nullopt;
}

TEST(MemoryPool, CountsWhatWasAskedForByKind) {
  MemoryPool pool;
  void* const weights = pool.allocate(1000, MemoryKind::kParameters);
  void* const output = pool.allocate(1, MemoryKind::kActivations);
  EXPECT_EQ(pool.use().current, 1001U);
  EXPECT_EQ(pool.use().by_kind, (BytesByKind{{1000, 0, 0, 1}}));
  MemoryPool::free(weights);
  EXPECT_EQ(pool.use().by_kind, (BytesByKind{{0, 0, 0, 1}}));
  EXPECT_EQ(pool.use().peak, 1001U);
  EXPECT_EQ(pool.use().by_kind_at_peak, (BytesByKind{{1000, 0, 0, 1}}));
  pool.reset_peak();
  EXPECT_EQ(pool.use().peak, 1U);
  MemoryPool::free(output);
  EXPECT_EQ(pool.use().current, 0U);
}

TEST(MemoryPool, AFreedBlockIsTakenOffItsOwnKind) {
  MemoryPool pool;
  constexpr std::array<std::size_t, 5> kBytes{1000, 200, 30, 4, 50000};  // of each kind
  for (const std::size_t freed : {2U, 0U, 4U, 3U, 1U}) {
    std::array<void*, 5> blocks{};
    for (std::size_t kind = 0; kind < blocks.size(); ++kind)
      blocks[kind] = pool.allocate(kBytes[kind], static_cast<MemoryKind>(kind));
    EXPECT_EQ(pool.use().by_kind, (BytesByKind{{1000, 200, 30, 4, 50000}}));
    EXPECT_EQ(pool.use().by_kind_at_peak, (BytesByKind{{1000, 200, 30, 4, 50000}}));
    BytesByKind left{{1000, 200, 30, 4, 50000}};
    left[static_cast<MemoryKind>(freed)] = 0;
    MemoryPool::free(std::exchange(blocks[freed], nullptr));
    EXPECT_EQ(pool.use().by_kind, left);
    EXPECT_EQ(pool.use().current, 51234 - kBytes[freed]);
    for (void* const block : blocks) MemoryPool::free(block);
    EXPECT_EQ(pool.use().by_kind, BytesByKind{});
  }
}

TEST(MemoryPool, AKeptBlockTakesTheKindOfItsNextUse) {
  MemoryPool pool;
  MemoryPool::free(pool.allocate(500, MemoryKind::kOptimizer));
  void* const again = pool.allocate(500, MemoryKind::kGradients);
  EXPECT_EQ(pool.use().by_kind, (BytesByKind{{0, 500, 0, 0}}));
  MemoryPool::free(again);
  EXPECT_EQ(pool.use().by_kind, BytesByKind{});
}

TEST(MemoryPool, EveryBlockIsWholeAlignedAndApart) {
  MemoryPool pool;
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (std::size_t bytes = 1; bytes < 3 * kMiB; bytes += 1 + bytes / 3) {
    auto* const data = static_cast<unsigned char*>(allocate(pool, bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    std::memset(data, static_cast<int>(blocks.size() % 251), bytes);
    blocks.emplace_back(data, bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].first[0], i % 251);
    EXPECT_EQ(blocks[i].first[blocks[i].second - 1], i % 251);
    MemoryPool::free(blocks[i].first);
  }
  MemoryPool::free(nullptr);
}

TEST(MemoryPool, TheNextRequestOfASizeIsServedByAFreedBlock) {
  if (!kKeepsBlocks) GTEST_SKIP() << "nothing is kept under AddressSanitizer";
  MemoryPool pool;
  void* const first = allocate(pool, 5000);
  MemoryPool::free(first);
  EXPECT_GE(pool.use().cached, 5000U);
  void* const second = allocate(pool, 4990);
  EXPECT_EQ(second, first);
  EXPECT_EQ(pool.use().cached, 0U);
  EXPECT_EQ(pool.use().current, 4990U);
  EXPECT_EQ(pool.use().fetches, 1U);
  MemoryPool::free(second);
  MemoryPool::free(allocate(pool, 50000));
  EXPECT_EQ(pool.use().fetches, 2U);
}

TEST(MemoryPool, ALimitRefusesWhatIsOverItAndNothingElse) {
  MemoryPool pool;
  pool.set_limit(10 * kMiB);
  void* const most = pool.allocate(9 * kMiB, MemoryKind::kGradients);
  const auto refusal = refusal_of(pool, kMiB + 1);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_TRUE(refusal->by_limit);
  EXPECT_EQ(refusal->asked, kMiB + 1);
  EXPECT_EQ(refusal->use.limit, 10 * kMiB);
  EXPECT_EQ(refusal->use.by_kind, (BytesByKind{{0, 9 * kMiB, 0, 0}}));
  EXPECT_FALSE(refusal_of(pool, kMiB).has_value());
  EXPECT_EQ(pool.use().current, 9 * kMiB);
  MemoryPool::free(most);
  EXPECT_FALSE(refusal_of(pool, 10 * kMiB).has_value());
  EXPECT_TRUE(refusal_of(pool, 10 * kMiB + 1).has_value());
  pool.set_limit(0);
  EXPECT_FALSE(refusal_of(pool, 11 * kMiB).has_value());
}

TEST(MemoryPool, KeptBlocksStayWithinTheLimitAndGiveWayToAnotherSize) {
  MemoryPool pool;
  pool.set_limit(10 * kMiB);
  std::vector<void*> small;
  for (int i = 0; i < 9; ++i) small.push_back(allocate(pool, kMiB));
  for (void* block : small) MemoryPool::free(block);
  EXPECT_EQ(pool.use().cached > 0, kKeepsBlocks);
  EXPECT_LE(pool.use().cached, 10 * kMiB);
  void* const large = allocate(pool, 8 * kMiB);
  EXPECT_LE(pool.use().current + pool.use().cached, 10 * kMiB);
  MemoryPool::free(large);
}

TEST(MemoryPool, SizesThatAreNoLongerUsedDoNotPileUp) {
  MemoryPool pool;
  constexpr std::size_t kLargest = 300 * kMiB;  // never touched
  for (std::size_t bytes = kLargest; bytes > 100 * kMiB; bytes -= 20 * kMiB) MemoryPool::free(allocate(pool, bytes));
  EXPECT_LE(pool.use().cached, kLargest + kLargest / 2);
  const auto fetches = pool.use().fetches;
  MemoryPool::free(allocate(pool, 120 * kMiB));  // the last one is still there
  EXPECT_EQ(pool.use().fetches, fetches + (kKeepsBlocks ? 0 : 1));
}

TEST(MemoryPool, WhenTheSystemRefusesEveryPoolGivesBack) {
  MemoryPool pool, other;
  MemoryPool::free(allocate(other, kMiB));
  void* const kept = allocate(pool, 100);
  const auto refusal = refusal_of(pool, std::size_t{1} << 46);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_FALSE(refusal->by_limit);
  EXPECT_EQ(other.use().cached, 0U);
  EXPECT_EQ(pool.use().current, 100U);
  EXPECT_EQ(pool.use().peak, 100U);
  EXPECT_TRUE(refusal_of(pool, SIZE_MAX - 5).has_value());
  MemoryPool::free(kept);
}

TEST(MemoryPool, ABlockIsTakenOffThePoolItCameFrom) {
  MemoryPool pool;
  void* const block = allocate(pool, 777);
  std::jthread([&] {
    MemoryPool other;
    void* const own = allocate(other, 5);
    MemoryPool::free(block);
    EXPECT_EQ(other.use().current, 5U);
    MemoryPool::free(own);
  }).join();
  EXPECT_EQ(pool.use().current, 0U);
}

TEST(MemoryPool, ManyThreadsLoseNothingAndShareNothing) {
  constexpr int kThreads = 4, kRounds = 4000;
  struct Handed {
    unsigned char* data;
    std::size_t bytes;
    unsigned char mark;
  };
  std::array<MemoryPool, 2> pools;
  pools[1].set_limit(2 * kMiB);
  std::mutex mutex;
  std::vector<Handed> handed;
  const auto take = [&](std::size_t at) -> std::optional<Handed> {
    const std::scoped_lock lock(mutex);
    if (handed.empty()) return std::nullopt;
    std::swap(handed[at % handed.size()], handed.back());
    const Handed block = handed.back();
    handed.pop_back();
    return block;
  };
  const auto work = [&](int thread) {
    RngStream rng(derive_key(7, thread));
    for (int round = 0; round < kRounds; ++round) {
      const auto random = static_cast<std::size_t>(rng.uniform() * 1e9);
      const std::size_t bytes = 1 + random % (std::size_t{1} << (random / 7 % 18));
      const auto mark = static_cast<unsigned char>(random);
      try {
        auto* const data = static_cast<unsigned char*>(allocate(pools[thread % 2], bytes));
        data[0] = data[bytes - 1] = mark;
        const std::scoped_lock lock(mutex);
        handed.push_back({data, bytes, mark});
        if (handed.size() < 50) continue;
      } catch (const MemoryRefusal& refusal) {
        EXPECT_TRUE(refusal.by_limit);
      }
      const std::optional<Handed> block = take(random);
      if (!block) continue;
      EXPECT_EQ(block->data[0], block->mark);
      EXPECT_EQ(block->data[block->bytes - 1], block->mark);
      MemoryPool::free(block->data);
      if (round % 1000 == 999) pools[0].give_back_all();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  }
  for (const Handed& block : handed) MemoryPool::free(block.data);
  for (const MemoryPool& pool : pools) {
    EXPECT_EQ(pool.use().current, 0U);
    EXPECT_EQ(pool.use().by_kind, BytesByKind{});
  }
  EXPECT_LE(pools[1].use().peak, 2 * kMiB);
}

}  // namespace
}  // namespace sluice::device
