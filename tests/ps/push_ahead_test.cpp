// Gradients that are sent while backward still runs. parity_test.cpp tests their values.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/ATen.h>

#include "ps/ahead_link.h"
#include "ps/bucket_thread.h"
#include "ps/worker_sync.h"

namespace sluice::ps::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kElements = 100;  // of each parameter

comm::SyncedStage two_parameters() {
  const at::TensorOptions numbers(at::kDouble);
  return {.stage = StageId{0},
          .extents = {{ParamId{0}, 0, kElements, "early", "", {kElements}, {1}},
                      {ParamId{1}, kElements, 2 * kElements, "late", "", {kElements}, {1}}},
          .values = {at::zeros({2 * kElements}, numbers)},
          .gradients = {at::arange(2 * kElements, numbers)},
          .devices = {{device::DeviceKind::kCpu, 0}}};
}

class Keeper final : public ServerLink {
 public:
  explicit Keeper(const std::vector<comm::SyncedStage>& stages) : layout_(layout_of(stages, {.shards = 3})) {}
  [[nodiscard]] const Layout& layout() const override { return layout_; }
  [[nodiscard]] std::int64_t pull(Tensors& into) override {
    for (const at::Tensor& shard : into.shards) shard.zero_();
    return 4;
  }
  void push(Push push) override { pushed.push_back(std::move(push)); }

  std::vector<Push> pushed;

 private:
  Layout layout_;
};

class PushAheadTest : public testing::Test {
 protected:
  PushAheadTest()
      : keeper_(std::make_shared<Keeper>(std::vector{two_parameters()})),
        link_(std::make_shared<AheadLink>(keeper_)),
        sync_({two_parameters()}, /*bucket_bytes=*/kElements * sizeof(double), link_) {}

  [[nodiscard]] std::int64_t wait_for_elements(std::int64_t elements) const {
    for (int look = 0; look < 1000 && link_->elements_ahead() < elements; ++look) std::this_thread::sleep_for(10ms);
    return link_->elements_ahead();
  }

  std::shared_ptr<Keeper> keeper_;
  std::shared_ptr<AheadLink> link_;
  WorkerSync sync_;
};

TEST_F(PushAheadTest, ABucketLeavesWhileTheNextIsComputed) {
  EXPECT_TRUE(sync_.begin_step({.gradient_scale = 0.5}));
  sync_.on_grad_ready(ReplicaId{0}, ParamId{1});
  EXPECT_EQ(wait_for_elements(kElements), kElements);
  EXPECT_TRUE(keeper_->pushed.empty());
  sync_.on_grad_ready(ReplicaId{0}, ParamId{0});
  EXPECT_EQ(wait_for_elements(2 * kElements), 2 * kElements);
  sync_.on_backward_done(ReplicaId{0}, StageId{0});
  EXPECT_EQ(sync_.finish_step({.samples = 3, .targets = 3}).update, comm::Update::kElsewhere);
  ASSERT_EQ(keeper_->pushed.size(), 1U);
  const auto values = from_shards(keeper_->layout(), keeper_->pushed[0].tensors.shards);
  EXPECT_TRUE(at::equal(at::cat(values), at::arange(2 * kElements, at::kDouble) * 2));
}

TEST_F(PushAheadTest, NothingOfATrialLeaves) {
  EXPECT_FALSE(sync_.begin_step({.is_trial = true}));
  sync_.on_backward_done(ReplicaId{0}, StageId{0});
  (void)sync_.finish_step({.samples = 3, .targets = 3});
  EXPECT_EQ(link_->elements_ahead(), 0);
  EXPECT_TRUE(keeper_->pushed.empty());
}

TEST_F(PushAheadTest, AStepThatFailedLeavesNothingForTheNext) {
  EXPECT_TRUE(sync_.begin_step({.gradient_scale = 3}));
  sync_.on_grad_ready(ReplicaId{0}, ParamId{1});
  EXPECT_TRUE(sync_.begin_step({}));  // without finish_step(): its pass has failed
  sync_.on_backward_done(ReplicaId{0}, StageId{0});
  (void)sync_.finish_step({.samples = 1, .targets = 1});
  ASSERT_EQ(keeper_->pushed.size(), 1U);
  const auto values = from_shards(keeper_->layout(), keeper_->pushed[0].tensors.shards);
  EXPECT_TRUE(at::equal(at::cat(values), at::arange(2 * kElements, at::kDouble)));
}

TEST(BucketThread, WorksInOrderAndTellsOfTheFirstError) {
  std::vector<int> done;
  BucketThread thread([&](int, int bucket) {
    if (bucket == 7) throw std::runtime_error("seven");
    done.push_back(bucket);
  });
  for (int bucket = 0; bucket < 5; ++bucket) thread.add(0, bucket, {});
  thread.wait();
  EXPECT_EQ(done, (std::vector{0, 1, 2, 3, 4}));
  for (int bucket = 6; bucket < 9; ++bucket) thread.add(0, bucket, {});
  EXPECT_THROW(thread.wait(), std::runtime_error);
  EXPECT_LE(done.size(), 7U);  // 6, and 8 where it came after the error
  thread.add(0, 9, {});
  thread.wait();
  EXPECT_EQ(done.back(), 9);
}

TEST(BucketThread, WhoForgetsWaitsForWhatIsUnderWay) {
  std::atomic<bool> has_begun = false, is_done = false;
  BucketThread thread([&](int, int) {
    has_begun = true;
    std::this_thread::sleep_for(50ms);
    is_done = true;
  });
  thread.add(0, 0, {});
  while (!has_begun) std::this_thread::yield();
  thread.forget();
  EXPECT_TRUE(is_done) << "it reads gradients that the next step writes";
}

}  // namespace
}  // namespace sluice::ps::test
