#include "pipeline/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"

namespace sluice::pipeline {
namespace {

TEST(Mailbox, GivesEachMicroBatchWhateverTheOrder) {
  constexpr int kMessages = 1000;
  Mailbox<int> mailbox;
  std::jthread sender([&] {
    for (int i = 0; i < kMessages; ++i) mailbox.put(MicroBatchId{i}, 7 * i);
  });
  for (int i = 0; i < kMessages; ++i) {
    const int wanted = i ^ 1;  // 1, 0, 3, 2, ...
    EXPECT_EQ(mailbox.take(MicroBatchId{wanted}), 7 * wanted);
  }
}

TEST(Mailbox, CloseWakesAWaitingReceiverAndDropsTheRest) {
  Mailbox<int> mailbox;
  std::jthread closer([&] { mailbox.close(); });
  EXPECT_EQ(mailbox.take(MicroBatchId{0}), std::nullopt);
  mailbox.put(MicroBatchId{0}, 1);
  EXPECT_EQ(mailbox.take(MicroBatchId{0}), std::nullopt);
}

TEST(Mailbox, ASecondMessageOfAMicroBatchIsABug) {
  Mailbox<int> mailbox;
  mailbox.put(MicroBatchId{3}, 1);
  EXPECT_THROW(mailbox.put(MicroBatchId{3}, 2), Error);
}

}  // namespace
}  // namespace sluice::pipeline
