#include "ps/net/partial_pushes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::ps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Holder final : public PartHolder {
 public:
  [[nodiscard]] PartState part_state(const PushKey& push) const override {
    const auto found = parts.find(push);
    return found == parts.end() ? PartState::kMissing : found->second;
  }
  void ask_for(const PushKey& push) override { asked.push_back(push); }

  std::map<PushKey, PartState> parts;
  std::vector<PushKey> asked;
};

PartialPush push_of(int worker, std::int64_t sequence) {
  return {.made = {.record = {.worker = WorkerId{worker}, .incarnation = 1, .sequence = sequence}},
          .tensors = {.shards = {at::full({2}, static_cast<double>(sequence))}, .statistics = at::empty({0})}};
}
PushKey key_of(int worker, std::int64_t sequence) { return {WorkerId{worker}, 1, sequence}; }

TEST(PartialPushes, WithoutOtherServersEveryPushIsWhole) {
  EXPECT_EQ(PartialPushes({}).part_state(key_of(0, 1)), PartState::kFinite);
}

TEST(PartialPushes, APushIsWholeOnceAllHoldTheirParts) {
  Holder first, second;
  const PartialPushes pushes({&first, &second});
  EXPECT_EQ(pushes.part_state(key_of(0, 3)), PartState::kMissing);
  first.parts[key_of(0, 3)] = PartState::kFinite;
  EXPECT_EQ(pushes.part_state(key_of(0, 3)), PartState::kMissing);
  second.parts[key_of(0, 2)] = PartState::kFinite;
  EXPECT_EQ(pushes.part_state(key_of(0, 3)), PartState::kMissing) << "that is of an older one";
  second.parts[key_of(0, 3)] = PartState::kFinite;
  EXPECT_EQ(pushes.part_state(key_of(0, 3)), PartState::kFinite);
}

TEST(PartialPushes, OnePartThatIsNotFiniteSpoilsAPush) {
  Holder first, second;
  const PartialPushes pushes({&first, &second});
  first.parts[key_of(0, 1)] = PartState::kFinite;
  second.parts[key_of(0, 1)] = PartState::kNotFinite;
  EXPECT_EQ(pushes.part_state(key_of(0, 1)), PartState::kNotFinite);
}

TEST(PartialPushes, OfEachWorkerTheNewestIsKeptUntilItIsTakenOrErased) {
  Holder holder;
  PartialPushes pushes({&holder});
  pushes.add(push_of(0, 1));
  pushes.add(push_of(1, 7));
  pushes.add(push_of(0, 2));
  ASSERT_NE(pushes.find(WorkerId{0}), nullptr);
  EXPECT_EQ(pushes.find(WorkerId{0})->made.record.sequence, 2);
  EXPECT_EQ(pushes.find(WorkerId{2}), nullptr);
  EXPECT_EQ(pushes.take(WorkerId{0}).tensors.shards[0][0].item<double>(), 2);
  EXPECT_EQ(pushes.find(WorkerId{0}), nullptr);
  EXPECT_THROW((void)pushes.take(WorkerId{0}), BugError);
  pushes.erase(WorkerId{1});
  EXPECT_EQ(pushes.find(WorkerId{1}), nullptr);
}

TEST(PartialPushes, OnlyWhoLacksAPartIsAskedAgain) {
  Holder first, second;
  PartialPushes pushes({&first, &second});
  pushes.ask_again();
  pushes.add(push_of(0, 1));
  pushes.add(push_of(1, 1));
  first.parts[key_of(0, 1)] = first.parts[key_of(1, 1)] = PartState::kFinite;
  second.parts[key_of(1, 1)] = PartState::kFinite;
  pushes.ask_again();
  EXPECT_THAT(first.asked, IsEmpty());
  EXPECT_THAT(second.asked, ElementsAre(key_of(0, 1)));
}

}  // namespace
}  // namespace sluice::ps
