// What a shard server's log gives back: parts and steps, also those of files that earlier versions wrote.
#include "ps/net/shard_log.h"

#include <gtest/gtest.h>

#include "ps/net/log_files.h"
#include "ps/net/toy.h"
#include "support/files.h"

namespace sluice::ps::test {
namespace {

using sluice::test::TempDir;

struct ShardLogTest : testing::Test {
  TempDir folder;
  const optim::OptimizerOptions optimizer{.kind = "sgd"};
  const PushKey push{WorkerId{0}, 2, 3};
  ShardsLoaded loaded{.run = "a", .version = 0, .assignment = {toy_layout(2), {1, 2}}};
  ShardsState zeros{.values = {at::zeros({elements()}, at::kDouble)}};
  ShardKeeper keeper{optimizer, loaded.assignment.shape(), zeros, loaded.version};

  [[nodiscard]] std::int64_t elements() const { return loaded.assignment.shape().shards[0]; }
  [[nodiscard]] Tensors part() const {
    return {.shards = {at::arange(elements(), at::kDouble)}, .statistics = at::empty({0}, at::kDouble)};
  }
  // The log has the part, and no more.
  void expect_part() const {
    const auto kept = read_shard_log(folder.path(), optimizer);
    ASSERT_TRUE(kept.has_value());
    EXPECT_EQ(kept->loaded.run, "a");
    const auto parts = kept->keeper->parts();
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].first, push);
    EXPECT_TRUE(at::equal(parts[0].second.shards[0], part().shards[0]));
  }
};

TEST_F(ShardLogTest, HasThePartsThatWaitBothInTheFileAndInTheNext) {
  ShardLog log(folder.path(), storage::Outlives::kProcess);
  log.begin(loaded, keeper);
  log.held(push, part());
  expect_part();
  ASSERT_TRUE(keeper.hold(push, part()));
  log.begin(loaded, keeper);
  expect_part();
}

// Until protocol 3 a part was written as it travelled.
TEST_F(ShardLogTest, OfAnEarlierVersionIsRead) {
  const Frame header = frame_of(
      std::string(R"({"first_shard":1,"is_ahead":false,"push":{"life":2,"sequence":3,"worker":0},"say":"part"})"));
  static_cast<void>(begin_log(folder.path(), 0, storage::Outlives::kProcess, nullptr, [&](storage::RecordLog& log) {
    append(log, 11, with_state(header_of(FromLead{loaded}), zeros));
    append(log, 12, with_tensors(header, part()));
  }));
  expect_part();
}

}  // namespace
}  // namespace sluice::ps::test
