// The push that a worker keeps until it is answered.
#include "ps/net/push_under_way.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

const WorkerId kWorker{2};

PushMade next_push(PushUnderWay& push, int incarnation, bool is_ahead) {
  PushRecord record{.worker = kWorker, .incarnation = incarnation, .targets = 1};
  Tensors tensors = room_for(toy_layout(2));
  if (is_ahead) tensors.shards.clear();
  const Packed packed = push.pack(record, std::move(tensors));
  const PushMade made{.record = record, .lease = 0, .is_ahead = is_ahead};
  static_cast<void>(push.make(made, packed, /*at=*/0));
  return made;
}

TEST(PushUnderWay, CountsAnewInEachIncarnation) {
  PushUnderWay push;
  push.begin({}, toy_layout(2));
  EXPECT_EQ(next_push(push, 1, false).record.sequence, 1);
  push.forget(/*was_committed=*/true);
  EXPECT_EQ(next_push(push, 1, false).record.sequence, 2);
  EXPECT_TRUE(push.is_open());
  push.begin_incarnation({.incarnation = {2}});
  EXPECT_FALSE(push.is_open());
  EXPECT_EQ(push.sequence(), 0);
  EXPECT_EQ(next_push(push, 2, false).record.sequence, 1);
}

TEST(PushUnderWay, WhatWentAheadIsSentAgainWithIt) {
  PushUnderWay push;
  push.begin({}, toy_layout(2));
  const auto send_ahead = [&](std::int64_t offset) {
    const PushAhead ahead{{kWorker, 1, push.sequence() + 1}, 0, 0, {{offset, 1}}};
    static_cast<void>(push.add_ahead(ahead, at::ones({1}, at::kDouble)));
  };
  send_ahead(0);
  push.forget_ahead();  // of a step that was given up
  send_ahead(1);
  send_ahead(2);
  static_cast<void>(next_push(push, 1, true));
  ASSERT_EQ(push.messages().size(), 3U);
  for (std::size_t m = 0; m < 3; ++m) {
    const auto message = from_worker(push.messages()[m].front());
    ASSERT_TRUE(message.has_value());
    if (m < 2)
      EXPECT_EQ(std::get<PushAhead>(*message).spans[0].offset, static_cast<std::int64_t>(m) + 1);
    else
      EXPECT_TRUE(std::get<PushMade>(*message).is_ahead);
  }
  push.forget(/*was_committed=*/true);
  EXPECT_TRUE(push.messages().empty());
  static_cast<void>(next_push(push, 1, false));
  EXPECT_EQ(push.messages().size(), 1U);
}

// Between the incarnation of the push and the one that begins the server may have abandoned another, whose welcome was
// lost.
TEST(PushUnderWay, WhatAPushLeavesOutIsKeptWhereItWasCommitted) {
  for (const bool was_committed : {true, false}) {
    PushUnderWay push;
    push.begin({.kind = Compression::Kind::kTopK, .ratio = 0.01}, toy_layout(1));  // one element of each shard
    PushRecord record{.worker = kWorker, .incarnation = 3, .targets = 1};
    const Packed packed =
        push.pack(record, {.shards = {at::arange(1, 12, at::kDouble)}, .statistics = at::zeros({2}, at::kDouble)});
    static_cast<void>(push.make({.record = record, .lease = 0}, packed, /*at=*/0));
    push.begin_incarnation(
        {.incarnation = {5}, .layout = toy_layout(1), .last_committed = was_committed ? 1 : 0, .abandoned = {3}});
    std::vector<double> left;
    for (const auto& [name, residual] : push.residuals()) {
      const at::Tensor flat = residual.flatten();
      left.insert(left.end(), flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
    }
    std::ranges::sort(left);
    std::vector<double> expected(11, 0.0);
    if (was_committed) expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};  // all but the largest
    EXPECT_EQ(left, expected);
  }
}

}  // namespace
}  // namespace sluice::ps::test
