#include "device/free_list.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace sluice::device {
namespace {

TEST(FreeList, WhatCameBackGoesOutAgainTheLastOneFirst) {
  FreeList<int> list;
  int made = 0;
  const auto make = [&made] { return std::make_unique<int>(made++); };
  auto first = list.take(make), second = list.take(make);
  EXPECT_EQ(made, 2);
  const int* const of_first = first.get();
  list.give_back(std::move(second));
  list.give_back(std::move(first));
  EXPECT_EQ(list.size(), 2U);
  EXPECT_EQ(list.take(make).get(), of_first);
  EXPECT_EQ(made, 2);
}

TEST(FreeList, NoThingIsLentTwiceAtOnceAndNoMoreAreMadeThanAreInUse) {
  constexpr int kThreads = 4, kRounds = 2000, kHeld = 3;
  struct Thing {
    std::atomic<int> holders = 0;
  };
  FreeList<Thing> list;
  std::atomic<int> made = 0, shared = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          std::vector<std::unique_ptr<Thing>> held;
          for (int i = 0; i < kHeld; ++i) {
            held.push_back(list.take([&] {
              ++made;
              return std::make_unique<Thing>();
            }));
            if (held.back()->holders.fetch_add(1) != 0) ++shared;
          }
          for (auto& thing : held) {
            --thing->holders;
            list.give_back(std::move(thing));
          }
        }
      });
    }
  }
  EXPECT_EQ(shared, 0);
  EXPECT_LE(made, kThreads * kHeld);
  EXPECT_EQ(list.size(), static_cast<std::size_t>(made.load()));
}

}  // namespace
}  // namespace sluice::device
