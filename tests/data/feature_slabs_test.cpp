#include "data/feature_slabs.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "data/feature_support.h"

namespace sluice::data {
namespace {

// Pages of address space of this process (proc(5)).
std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * MappedMemory::page();
}

struct NumberedSlot {
  FeatureSlabs::Slot slot;
  std::int64_t number;
};

void write_row(std::byte* to, std::int64_t number, std::uint64_t bytes) {
  const test::Bytes row = test::row_of({number, 0}, bytes);
  std::memcpy(to, row.data(), bytes);
}

bool is_row(const std::byte* row, std::int64_t number, std::uint64_t bytes) {
  return std::memcmp(row, test::row_of({number, 0}, bytes).data(), bytes) == 0;
}

std::vector<NumberedSlot> fill(FeatureSlabs& slabs, std::uint64_t row_bytes) {
  std::vector<NumberedSlot> slots;
  while (const auto slot = slabs.reserve()) {
    slots.push_back({*slot, std::ssize(slots)});
    write_row(slabs.row(*slot), slots.back().number, row_bytes);
  }
  return slots;
}

TEST(FeatureSlabs, AreFilledToTheLimitAndNoFurther) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const std::uint64_t row_bytes = 1 + random() % 9000;
    const std::uint64_t limit = random() % 600'000;
    SCOPED_TRACE(testing::Message() << "rows of " << row_bytes << ", limit " << limit);
    FeatureSlabs slabs;
    slabs.reset(row_bytes, limit);
    const bool could = slabs.could_hold_one();
    const auto slots = fill(slabs, row_bytes);
    EXPECT_EQ(could, !slots.empty());
    EXPECT_LE(slabs.charged_bytes(), limit);
    EXPECT_GE(slabs.charged_bytes(), slabs.mapped_bytes() + slots.size() * kIndexBytes);
    EXPECT_GT(slabs.charged_bytes() + MappedMemory::whole_pages(row_bytes) + kIndexBytes, limit);
    for (const auto& [slot, number] : slots) EXPECT_TRUE(is_row(slabs.row(slot), number, row_bytes));
  }
}

TEST(FeatureSlabs, TakeAtLeastNineTenthsOfALargeLimitForRows) {
  constexpr std::uint64_t kLimit = 8 << 20;
  for (const std::uint64_t row_bytes : {1000U, 4096U, 100'000U, 400'000U}) {
    FeatureSlabs slabs;
    slabs.reset(row_bytes, kLimit);
    EXPECT_GE(fill(slabs, row_bytes).size() * (row_bytes + kIndexBytes), kLimit * 9 / 10) << row_bytes;
  }
}

TEST(FeatureSlabs, MemoryComesFromTheSystemAndGoesBackToIt) {
  constexpr std::uint64_t kLimit = 256 << 20;
  FeatureSlabs slabs;
  slabs.reset(1 << 20, kLimit);
  const std::uint64_t before = address_space();
  while (slabs.reserve()) {
  }
  EXPECT_EQ(address_space() - before, slabs.mapped_bytes());
  EXPECT_GT(slabs.mapped_bytes(), kLimit * 9 / 10);
  slabs.reset(1 << 20, kLimit);
  EXPECT_EQ(address_space(), before);
}

TEST(FeatureSlabs, ALimitThatRisesGivesRoomAndOneThatFallsTakesNothingAway) {
  FeatureSlabs slabs;
  slabs.reset(1000, 100'000);
  const auto slots = fill(slabs, 1000);
  EXPECT_TRUE(slabs.full());
  slabs.set_limit(1000);
  EXPECT_FALSE(slabs.reserve());
  for (const auto& [slot, number] : slots) EXPECT_TRUE(is_row(slabs.row(slot), number, 1000));
  slabs.set_limit(200'000);
  EXPECT_TRUE(slabs.reserve());
}

TEST(FeatureSlabs, MoreThanTheSystemHasIsAWarningAndNoRoom) {
  FeatureSlabs slabs;
  slabs.reset(std::uint64_t{1} << 60, std::uint64_t{1} << 61);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(slabs.reserve());
  EXPECT_FALSE(slabs.reserve());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("no more memory than the 0 B that it has"));
}

struct Change {
  std::uint64_t old_bytes;
  std::uint64_t new_bytes;
  std::uint64_t limit;
  double filled;
};

// Changes row after row, checks that no old row is changed before its turn, and returns the new rows.
std::map<std::int64_t, FeatureSlabs::Slot> change_rows(FeatureSlabs& slabs, const std::vector<NumberedSlot>& slots,
                                                       const Change& change, std::mt19937& random) {
  const std::uint64_t most = std::max(slabs.charged_bytes(), change.limit);
  std::map<std::int64_t, FeatureSlabs::Slot> kept;
  slabs.begin_change(change.new_bytes, change.limit);
  for (std::size_t begin = 0; begin < slots.size();) {
    std::size_t end = begin + 1;
    const std::size_t piece = 1 + random() % 5;
    while (end < slots.size() && end - begin < piece && slots[end].slot.slab == slots[begin].slot.slab) ++end;
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_TRUE(is_row(slabs.old_row(slots[i].slot), slots[i].number, change.old_bytes)) << i;
    slabs.release_old(slots[end - 1].slot);
    for (std::size_t i = begin; i < end; ++i) {
      const auto slot = slabs.reserve();
      if (!slot) continue;
      write_row(slabs.row(*slot), slots[i].number, change.new_bytes);
      kept.emplace(slots[i].number, *slot);
    }
    EXPECT_LE(slabs.charged_bytes(), most);
    begin = end;
  }
  slabs.end_change();
  EXPECT_LE(slabs.charged_bytes(), most);
  return kept;
}

TEST(FeatureSlabs, RowsChangeTheirSizeInPlaceWithinTheLimit) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 300; ++trial) {
    const Change change{1 + random() % 5000, 1 + random() % 5000, 20'000 + random() % 400'000,
                        random() % 4 == 0 ? 0.5 : 1.0};
    SCOPED_TRACE(testing::Message() << change.old_bytes << " to " << change.new_bytes << ", limit " << change.limit);
    FeatureSlabs slabs;
    slabs.reset(change.old_bytes, static_cast<std::uint64_t>(static_cast<double>(change.limit) * change.filled));
    const auto slots = fill(slabs, change.old_bytes);
    const auto kept = change_rows(slabs, slots, change, random);
    for (const auto& [number, slot] : kept) EXPECT_TRUE(is_row(slabs.row(slot), number, change.new_bytes)) << number;
    if (change.new_bytes <= change.old_bytes) {
      EXPECT_EQ(kept.size(), slots.size());
    }
    const auto more = fill(slabs, change.new_bytes);
    for (const auto& [number, slot] : kept) EXPECT_TRUE(is_row(slabs.row(slot), number, change.new_bytes)) << number;
    EXPECT_LE(slabs.charged_bytes(), change.limit);
    EXPECT_GT(slabs.charged_bytes() + change.new_bytes + 2 * MappedMemory::page(), change.limit);
  }
}

TEST(FeatureSlabs, RowsThatBecomeSmallerLeaveTheirSlabsToTheSystem) {
  FeatureSlabs slabs;
  slabs.reset(64'000, 4 << 20);
  const auto slots = fill(slabs, 64'000);
  const std::uint64_t before = slabs.mapped_bytes();
  std::mt19937 random(3);
  const auto kept = change_rows(slabs, slots, {64'000, 6400, 4 << 20, 1}, random);
  EXPECT_EQ(kept.size(), slots.size());
  EXPECT_LE(slabs.mapped_bytes(), before / 4);
}

}  // namespace
}  // namespace sluice::data
