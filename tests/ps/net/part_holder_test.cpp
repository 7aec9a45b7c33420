#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/net/shard_link.h"

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

PushKey key_of(int worker, std::int64_t sequence) { return {WorkerId{worker}, 1, sequence}; }

TEST(PartHolder, WithoutOtherServersEveryPushIsWhole) { EXPECT_EQ(part_state({}, key_of(0, 1)), PartState::kFinite); }

TEST(PartHolder, APushIsWholeOnceAllHoldTheirParts) {
  Holder first, second;
  const std::vector<PartHolder*> holders{&first, &second};
  EXPECT_EQ(part_state(holders, key_of(0, 3)), PartState::kMissing);
  first.parts[key_of(0, 3)] = PartState::kFinite;
  EXPECT_EQ(part_state(holders, key_of(0, 3)), PartState::kMissing);
  second.parts[key_of(0, 2)] = PartState::kFinite;
  EXPECT_EQ(part_state(holders, key_of(0, 3)), PartState::kMissing) << "that is of an older one";
  second.parts[key_of(0, 3)] = PartState::kFinite;
  EXPECT_EQ(part_state(holders, key_of(0, 3)), PartState::kFinite);
}

TEST(PartHolder, OnePartThatIsNotFiniteSpoilsAPush) {
  Holder first, second;
  const std::vector<PartHolder*> holders{&first, &second};
  first.parts[key_of(0, 1)] = PartState::kFinite;
  second.parts[key_of(0, 1)] = PartState::kNotFinite;
  EXPECT_EQ(part_state(holders, key_of(0, 1)), PartState::kNotFinite);
}

TEST(PartHolder, OnlyServersThatLackAPartAreAskedForIt) {
  Holder first, second;
  first.parts[key_of(0, 1)] = first.parts[key_of(1, 1)] = PartState::kFinite;
  second.parts[key_of(1, 1)] = PartState::kFinite;
  for (const int worker : {0, 1}) ask_for_missing({&first, &second}, key_of(worker, 1));
  EXPECT_THAT(first.asked, IsEmpty());
  EXPECT_THAT(second.asked, ElementsAre(key_of(0, 1)));
}

}  // namespace
}  // namespace sluice::ps
