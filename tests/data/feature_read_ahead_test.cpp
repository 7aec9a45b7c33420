#include "data/feature_read_ahead.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "data/feature_support.h"
#include "support/files.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kRow = 4088;  // with its checksum a page
constexpr std::uint64_t kPage = 4096;

class ReadAhead : public testing::Test {
 protected:
  void SetUp() override {
    file_.reset(kRow);
    for (std::int64_t sample = 0; sample < 100; ++sample) {
      const auto slot = file_.reserve();
      ASSERT_TRUE(slot && file_.write(*slot, {sample, 0}, test::row_of({sample, 0}, kRow).data()));
    }
  }

  static std::vector<FeatureReadAhead::Row> rows(std::uint32_t begin, std::uint32_t end) {
    std::vector<FeatureReadAhead::Row> list;
    for (std::uint32_t slot = begin; slot < end; ++slot) list.push_back({.key = {slot, 0}, .slot = slot});
    return list;
  }

  bool take(std::uint32_t position, std::int64_t sample) {
    test::Bytes row(kRow);
    if (!ahead_.take(position, {sample, 0}, row.data())) return false;
    EXPECT_EQ(row, test::row_of({sample, 0}, kRow)) << sample;
    return true;
  }

  void wait_for(std::size_t rows) {
    while (ahead_.rows_there() < rows) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  test::TempDir dir_;
  FeatureFile file_{dir_.path(), 1 << 20};
  FeatureReadAhead ahead_{file_};
};

TEST_F(ReadAhead, FillsItsBufferInOrderAndContinuesAsRowsAreTaken) {
  ahead_.start(rows(0, 100), 10 * kPage + 100);
  EXPECT_EQ(ahead_.mapped_bytes(), 10 * kPage);
  for (std::uint32_t position = 0; position < 100; ++position) {
    wait_for(std::min<std::size_t>(10, 100 - position));
    EXPECT_TRUE(take(position, position)) << position;
    EXPECT_FALSE(take(position, position)) << "taken twice";
  }
}

TEST_F(ReadAhead, ARowThatIsNotThereYetIsPassedOver) {
  ahead_.start(rows(0, 100), 4 * kPage);
  wait_for(4);
  EXPECT_FALSE(take(6, 6));
  for (std::uint32_t position = 0; position < 4; ++position) EXPECT_TRUE(take(position, position));
  wait_for(4);  // 4, 5, 7, 8
  EXPECT_FALSE(take(6, 6));
  EXPECT_TRUE(take(8, 8));
}

TEST_F(ReadAhead, RowsThatAreNotTakenDoNotBlockItForever) {
  ahead_.start(rows(0, 100), 4 * kPage);
  wait_for(4);
  EXPECT_FALSE(take(50, 50));
  wait_for(4);
  EXPECT_FALSE(take(0, 0));
  for (std::uint32_t position = 51; position < 55; ++position) EXPECT_TRUE(take(position, position));
}

TEST_F(ReadAhead, TakesNoMoreMemoryThanTheListNeedsOrTheBufferMayHave) {
  ahead_.start(rows(0, 3), 100 * kPage);
  EXPECT_EQ(ahead_.mapped_bytes(), 3 * kPage);
  ahead_.start(rows(0, 100), kPage - 1);
  EXPECT_EQ(ahead_.mapped_bytes(), 0U);
  EXPECT_FALSE(take(0, 0));
  ahead_.start({}, 100 * kPage);
  EXPECT_EQ(ahead_.mapped_bytes(), 0U);
}

TEST_F(ReadAhead, ANewListTakesThePlaceOfTheOld) {
  ahead_.start(rows(0, 50), 4 * kPage);
  wait_for(4);
  ahead_.start(rows(50, 100), 4 * kPage);
  EXPECT_FALSE(take(0, 0)) << "another key has this position now";
  wait_for(4);
  EXPECT_TRUE(take(0, 50));
  ahead_.stop();
  EXPECT_EQ(ahead_.mapped_bytes(), 0U);
  EXPECT_FALSE(take(1, 51));
}

TEST_F(ReadAhead, ADamagedRowIsNotThere) {
  test::damage(test::unnamed_files(dir_.path()).at(0), 2 * kPage + 17, 1);
  ahead_.start(rows(0, 5), 8 * kPage);
  wait_for(4);
  for (std::uint32_t position = 0; position < 5; ++position) EXPECT_EQ(take(position, position), position != 2);
}

TEST_F(ReadAhead, ThreadsTakeEachRowAtMostOnce) {
  for (int round = 0; round < 20; ++round) {
    ahead_.start(rows(0, 100), 8 * kPage);
    std::vector<std::atomic<int>> taken(100);
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&] {
        for (std::uint32_t position = 0; position < 100; ++position)
          taken[position] += take(position, position) ? 1 : 0;
      });
    }
    if (round % 2 == 0) ahead_.stop();
    threads.clear();
    for (const auto& count : taken) EXPECT_LE(count, 1);
  }
}

TEST_F(ReadAhead, ListsChangeWhileThreadsTakeRows) {
  std::atomic<bool> ends = false;
  std::atomic<int> taken = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      while (!ends) {
        for (std::uint32_t position = 0; position < 100; ++position) taken += take(position, position) ? 1 : 0;
        std::this_thread::yield();
      }
    });
  }
  for (int round = 0; round < 300 || taken < 1000; ++round) {
    ahead_.start(rows(0, 100), 50 * kPage);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (round % 3 == 0) ahead_.stop();
  }
  ends = true;
}

}  // namespace
}  // namespace sluice::data
