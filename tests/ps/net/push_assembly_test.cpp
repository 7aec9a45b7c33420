// What comes ahead of a push, by hand and against a plain loop over random cuts.
#include "ps/net/push_assembly.h"

#include <algorithm>
#include <random>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace sluice::ps::test {
namespace {

const TensorsShape kShape{.dtype = at::kDouble, .shards = {7, 1, 0, 12}};
const PushKey kPush{WorkerId{3}, 2, 5};

std::vector<at::Tensor> some_shards(int first = 0) {
  std::vector<at::Tensor> shards;
  for (const std::int64_t elements : kShape.shards)
    shards.push_back(at::arange(elements, at::kDouble) + 100 * (first + std::ssize(shards)));
  return shards;
}

PushAhead ahead_of(std::int64_t shard, std::vector<ShardSpan> spans, std::int64_t lease = 8) {
  return {.push = kPush, .lease = lease, .shard = shard, .spans = std::move(spans)};
}

Frames frames_of(const std::vector<ShardSpan>& spans, const at::Tensor& shard) {
  std::vector<at::Tensor> parts;
  for (const ShardSpan& span : spans) parts.push_back(shard.narrow(0, span.offset, span.elements));
  return {frame_of(std::string("header")), frame_of(at::cat(parts))};
}

bool take(PushAssembly& assembly, const std::vector<at::Tensor>& shards, std::int64_t shard,
          const std::vector<ShardSpan>& spans, std::int64_t lease = 8) {
  return assembly.take(ahead_of(shard, spans, lease), frames_of(spans, shards[shard]), kShape);
}

void expect_equal(const std::optional<std::vector<at::Tensor>>& got, const std::vector<at::Tensor>& shards) {
  ASSERT_TRUE(got.has_value());
  ASSERT_EQ(got->size(), shards.size());
  for (std::size_t s = 0; s < shards.size(); ++s) EXPECT_TRUE(at::equal((*got)[s], shards[s])) << s;
}

// Every shard cut at random, some cuts in one message, some twice.
std::vector<std::pair<std::int64_t, std::vector<ShardSpan>>> random_messages(std::mt19937& random) {
  std::vector<std::pair<std::int64_t, std::vector<ShardSpan>>> messages;
  for (std::int64_t s = 0; s < std::ssize(kShape.shards); ++s) {
    for (std::int64_t begin = 0; begin < kShape.shards[s];) {
      const std::int64_t elements = std::min<std::int64_t>(1 + random() % 4, kShape.shards[s] - begin);
      const bool goes_along = !messages.empty() && messages.back().first == s && random() % 2 == 0;
      if (!goes_along) messages.emplace_back(s, std::vector<ShardSpan>{});
      messages.back().second.push_back({begin, elements});
      begin += elements;
    }
  }
  std::ranges::shuffle(messages, random);
  return messages;
}

TEST(PushAssembly, IsWholeWhenEveryElementHasCome) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    PushAssembly assembly;
    const auto shards = some_shards(round);
    const auto messages = random_messages(random);
    const std::size_t lost = round % 2 == 0 ? messages.size() : random() % messages.size();
    for (std::size_t m = 0; m < messages.size(); ++m) {
      if (m == lost) continue;
      for (int times = random() % 3 == 0 ? 2 : 1; times > 0; --times)
        EXPECT_TRUE(take(assembly, shards, messages[m].first, messages[m].second));
    }
    const auto got = assembly.finish(kPush, kShape);
    if (lost == messages.size())
      expect_equal(got, shards);
    else
      EXPECT_FALSE(got.has_value()) << round;
    EXPECT_FALSE(assembly.finish(kPush, kShape).has_value());  // it keeps nothing
  }
}

TEST(PushAssembly, IsOfOneStepOnly) {
  const auto before = some_shards(50), shards = some_shards();
  PushAssembly assembly;
  EXPECT_TRUE(take(assembly, before, 0, {{0, 7}}, /*lease=*/7));  // of a step that was given up
  EXPECT_TRUE(take(assembly, shards, 3, {{0, 12}}));
  EXPECT_TRUE(take(assembly, shards, 1, {{0, 1}}));
  EXPECT_FALSE(assembly.finish(kPush, kShape).has_value());
  for (const std::int64_t s : {0, 1, 3}) EXPECT_TRUE(take(assembly, shards, s, {{0, kShape.shards[s]}}));
  EXPECT_FALSE(assembly.finish({kPush.worker, kPush.incarnation, kPush.sequence + 1}, kShape).has_value());
  for (const std::int64_t s : {0, 1, 3}) EXPECT_TRUE(take(assembly, shards, s, {{0, kShape.shards[s]}}));
  expect_equal(assembly.finish(kPush, kShape), shards);
}

TEST(PushAssembly, RefusesWhatCannotBeThere) {
  const auto shards = some_shards();
  const std::int64_t huge = std::int64_t{1} << 47;
  PushAssembly assembly;
  const Frames frames{frame_of(std::string("header")), frame_of(at::zeros({3}, at::kDouble))};
  for (const PushAhead& bad :
       {ahead_of(4, {{0, 3}}), ahead_of(0, {{5, 3}}), ahead_of(0, {{0, 2}}), ahead_of(0, {{0, 4}}),
        ahead_of(0, {{huge, 3}}), ahead_of(0, {{0, huge}, {0, huge}}), ahead_of(2, {{0, 3}})})
    EXPECT_FALSE(assembly.take(bad, frames, kShape));
  EXPECT_FALSE(assembly.take(ahead_of(0, {{0, 3}}), {frames[0]}, kShape));
  EXPECT_FALSE(assembly.take(ahead_of(0, {{0, 3}}), {frames[0], frames[1], frames[1]}, kShape));
  const Frames bytes{frames[0], frame_of(std::string(23, 'x'))};
  EXPECT_FALSE(assembly.take(ahead_of(0, {{0, 3}}), bytes, kShape));
  EXPECT_FALSE(assembly.finish(kPush, kShape).has_value());
}

// Which of the two would be right is not known: all has to come again.
TEST(PushAssembly, WhatLiesOverAnotherSpanMakesAllUnknown) {
  const auto shards = some_shards();
  for (const ShardSpan& over : {ShardSpan{0, 5}, {2, 4}, {1, 2}, {1, 5}, {4, 2}, {0, 7}}) {
    PushAssembly assembly;
    EXPECT_TRUE(take(assembly, shards, 0, {{0, 2}, {5, 2}}));
    EXPECT_FALSE(take(assembly, shards, 0, {over}));
    EXPECT_TRUE(take(assembly, shards, 1, {{0, 1}}));
    EXPECT_TRUE(take(assembly, shards, 3, {{0, 12}}));
    EXPECT_FALSE(assembly.finish(kPush, kShape).has_value());
  }
}

}  // namespace
}  // namespace sluice::ps::test
