#include "ps/net/update_queue.h"

#include <gtest/gtest.h>

namespace sluice::ps {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;

PushRecord push_of(int worker, std::int64_t sequence) {
  return {.worker = WorkerId{worker}, .incarnation = 1, .sequence = sequence};
}

NetworkUpdate update_of(std::int64_t version, const std::vector<PushRecord>& pushes) {
  NetworkUpdate update{.done = {.update = {.version = version, .pushes = pushes}}};
  for (const PushRecord& push : pushes) update.pushes.push_back({.record = push});
  return update;
}

TEST(UpdateQueue, AnUpdateOfWhichAllIsKnownIsTakenAtOnceAndInItsOrder) {
  UpdateQueue queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.due_at());
  EXPECT_FALSE(queue.take(0));
  queue.add(update_of(1, {push_of(0, 1)}), {}, 5);
  queue.add(update_of(2, {push_of(0, 2)}), {}, 6);
  EXPECT_EQ(queue.take(6)->done.update.version, 1);
  EXPECT_EQ(queue.take(6)->done.update.version, 2);
  EXPECT_TRUE(queue.empty());
}

TEST(UpdateQueue, AnUpdateWaitsForTheTimesOfItsPushesButNotForEver) {
  UpdateQueue queue;
  queue.add(update_of(1, {push_of(0, 1), push_of(1, 1)}), {push_of(0, 1).key(), push_of(1, 1).key()}, 5);
  queue.add(update_of(2, {push_of(0, 2)}), {}, 7);
  EXPECT_EQ(queue.due_at(), 5 + kSecond);
  queue.set_send_time(push_of(0, 1).key(), 0.25);
  EXPECT_FALSE(queue.take(8)) << "nor what comes after it";
  const auto late = queue.take(5 + kSecond);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->pushes[0].times.send_s, 0.25);
  EXPECT_EQ(late->pushes[1].times.send_s, 0);
  EXPECT_EQ(queue.take(8)->done.update.version, 2);
}

TEST(UpdateQueue, ATimeIsThatOfItsPushAlone) {
  UpdateQueue queue;
  queue.add(update_of(1, {push_of(0, 1)}), {push_of(0, 1).key()}, 5);
  queue.add(update_of(2, {push_of(0, 2)}), {push_of(0, 2).key()}, 5);
  PushKey of_another_incarnation = push_of(0, 1).key();
  ++of_another_incarnation.incarnation;
  queue.set_send_time(of_another_incarnation, 4);
  queue.set_send_time(push_of(1, 1).key(), 4);
  EXPECT_FALSE(queue.take(6));
  queue.set_send_time(push_of(0, 1).key(), 0.5);
  EXPECT_EQ(queue.take(6)->pushes[0].times.send_s, 0.5);
  EXPECT_FALSE(queue.take(6));
  queue.set_send_time(push_of(0, 2).key(), 0.75);
  EXPECT_EQ(queue.take(6)->pushes[0].times.send_s, 0.75);
}

TEST(UpdateQueue, NobodyWaitsForAWorkerThatIsForgotten) {
  UpdateQueue queue;
  queue.add(update_of(1, {push_of(0, 1), push_of(1, 1)}), {push_of(0, 1).key(), push_of(1, 1).key()}, 5);
  queue.forget(WorkerId{0});
  EXPECT_FALSE(queue.take(6));
  queue.forget(WorkerId{1});
  EXPECT_TRUE(queue.take(6));
}

}  // namespace
}  // namespace sluice::ps
