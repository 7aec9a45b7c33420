// A shard's updates, bit for bit, beside the same operations on whole tensors, one after the other.
#include "ps/shard_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/concat.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

constexpr std::int64_t kElements = 70'003;  // no multiple of a vector or a cache line, more than a block of a norm
constexpr int kPushes = 3, kUpdates = 3;

at::Tensor wave(double frequency) {
  return (at::arange(kElements, at::kDouble) * frequency + 0.3).sin().to(at::kFloat);
}

std::vector<at::Tensor> pushes_of(int update) {
  static const at::Tensor kAll = [] {
    std::vector<at::Tensor> all;
    for (int i = 0; i < kUpdates * kPushes; ++i) all.push_back(wave(0.37 + 0.011 * i));
    return at::stack(all);
  }();
  std::vector<at::Tensor> pushed;
  for (int worker = 0; worker < kPushes; ++worker) pushed.push_back(kAll[kPushes * update + worker].clone());
  return pushed;
}

at::Tensor sum_of(const Mix& mix, const std::vector<at::Tensor>& pushed) {
  at::Tensor sum = at::zeros({kElements}, at::kFloat);
  bool is_first = true;
  for (const MixPart& part : mix.parts) {
    if (is_first)
      sum.copy_(pushed[part.push]).mul_(part.take);
    else
      sum.add_(pushed[part.push], part.take);
    is_first = false;
  }
  return sum;
}

class ShardStateTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // as in a server's thread
  void TearDown() override { at::set_num_threads(before_); }

  const int before_ = at::get_num_threads();
};

struct Named {
  std::string name;
  Mix mix;
};

std::vector<Named> sums() {
  return {{"one push as it is", {.parts = {{1, 1}}, .divisor = 1}},
          {"one push of summed losses", {.parts = {{2, 1}}, .divisor = 7}},
          {"one push that is weighed", {.parts = {{0, 0.3}}, .divisor = 0.3}},
          {"all", {.parts = {{2, 1}, {0, 1}, {1, 1}}, .divisor = 72}},
          {"all, weighed", {.parts = {{0, 0.7}, {1, 1.9}, {2, 1}}, .divisor = 3.6}},
          {"none", {}}};
}

std::vector<optim::OptimizerOptions> optimizers() {
  return {{.kind = "sgd"},
          {.kind = "momentum", .nesterov = true, .weight_decay = 0.01},
          {.kind = "momentum", .nesterov = true, .nesterov_delay = 2},
          {.kind = "rmsprop"},
          {.kind = "adam", .weight_decay = 0.1},
          {.kind = "adamw", .weight_decay = 0.1}};
}

TEST_F(ShardStateTest, AnUpdateIsTheOptimizersStepOnTheSumBitForBit) {
  for (const optim::OptimizerOptions& options : optimizers()) {
    for (const Named& of : sums()) {
      SCOPED_TRACE(concat(options.kind, ", ", of.name));
      ShardState shard(options, wave(1.1));
      const at::Tensor values = wave(1.1), gradients = at::zeros_like(values);
      optim::Optimizer optimizer(options, values, gradients);
      for (int update = 0; update < kUpdates; ++update) {
        const double lr = 0.1 / (update + 1);
        gradients.copy_(sum_of(of.mix, pushes_of(update)));
        shard.add_up(of.mix, pushes_of(update));
        EXPECT_EQ(shard.sum_of_squares(), optim::sum_of_squares(gradients));
        EXPECT_TRUE(shard.is_finite());
        shard.update(lr, of.mix.divisor);
        optimizer.begin_step();
        optimizer.update(lr, of.mix.divisor, {});
        ASSERT_TRUE(at::equal(shard.values(), values)) << "update " << update;
      }
      for (std::size_t i = 0; i < optimizer.states().size(); ++i)
        EXPECT_TRUE(at::equal(shard.optimizer().states()[i].second, optimizer.states()[i].second));
    }
  }
}

TEST_F(ShardStateTest, MixedWeightsAreTheWeightedMeanBitForBitAndCountWhenTheyAreTaken) {
  const Mix mean{.parts = {{1, 5}, {0, 9}, {2, 1}}, .divisor = 15},
      half{.keep = 1.7, .parts = {{2, 0.3}}, .divisor = 2};
  for (const Mix& mix : {mean, half}) {
    ShardState shard({.kind = "sgd"}, wave(1.1));
    at::Tensor expected = wave(1.1);
    for (int update = 0; update < kUpdates; ++update) {
      const std::vector<at::Tensor> pushed = pushes_of(update);
      const at::Tensor before = expected.clone();
      expected.mul_(mix.keep);
      for (const MixPart& part : mix.parts) expected.add_(pushed[part.push], part.take);
      expected.div_(mix.divisor);
      EXPECT_TRUE(shard.mix_weights(mix, pushes_of(update)));
      ASSERT_TRUE(at::equal(shard.values(), before));
      shard.take_mixed();
      ASSERT_TRUE(at::equal(shard.values(), expected)) << "update " << update;
    }
  }
}

TEST_F(ShardStateTest, OneElementThatIsNotFiniteIsFoundWhereverItIs) {
  const Mix mean{.parts = {{0, 1}, {1, 1}}, .divisor = 2};
  for (const std::int64_t where : {std::int64_t{0}, kElements / 2, kElements - 1}) {
    std::vector<at::Tensor> pushed = pushes_of(0);
    for (int push = 0; push < 2; ++push) pushed[push][where] = 3e38;  // each is finite, their sum is not
    ShardState shard({.kind = "sgd"}, wave(1.1));
    EXPECT_FALSE(shard.mix_weights(mean, pushed));
    shard.add_up(mean, pushed);
    EXPECT_FALSE(shard.is_finite());
    EXPECT_TRUE(at::equal(shard.values(), wave(1.1)));
  }
}

constexpr std::int64_t kGiven = 4099;
const Mix kOne{.parts = {{0, 1}}, .divisor = 1};

void step(ShardState& shard) {
  shard.add_up(kOne, {at::ones({kGiven})});
  shard.update(/*lr=*/1, kOne.divisor);
}
void mix(ShardState& shard, double values) {
  ASSERT_TRUE(shard.mix_weights(kOne, {at::full({kGiven}, values, at::kFloat)}));
  shard.take_mixed();
}

TEST_F(ShardStateTest, WeightsThatWereGivenOutStayAsTheyAre) {
  ShardState shard({.kind = "sgd"}, at::zeros({kGiven}));
  std::vector<at::Tensor> given;
  for (int update = 0; update < 6; ++update) {
    given.push_back(shard.values());
    if (update % 3 == 2)
      mix(shard, -1.0 - update);
    else
      step(shard);
  }
  for (std::size_t update = 0; update < given.size(); ++update)
    EXPECT_TRUE(at::equal(given[update], at::full({kGiven}, -static_cast<double>(update), at::kFloat)));
  EXPECT_TRUE(at::equal(shard.values(), at::full({kGiven}, -6.0, at::kFloat)));
}

TEST_F(ShardStateTest, AnUpdateIsMadeInPlaceWhereNobodyHoldsTheWeights) {
  ShardState shard({.kind = "sgd"}, at::zeros({kGiven}));
  const void* const address = shard.values().const_data_ptr();
  for (int update = 0; update < 3; ++update) step(shard);
  EXPECT_EQ(shard.values().const_data_ptr(), address);
  const at::Tensor held = shard.values();
  step(shard);
  EXPECT_NE(shard.values().const_data_ptr(), address);
}

TEST_F(ShardStateTest, WeightsMayBeReadAndLetGoOfInAnotherThread) {
  ShardState shard({.kind = "sgd"}, at::zeros({kGiven}));
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<at::Tensor> given;
  std::int64_t torn = 0;
  std::thread reader([&] {
    for (int read = 0; read < 2000; ++read) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !given.empty(); });
      const at::Tensor weights = std::move(given.front());
      given.pop_front();
      lock.unlock();
      const auto* const values = weights.const_data_ptr<float>();
      torn += std::any_of(values, values + kGiven, [&](float value) { return value != values[0]; }) ? 1 : 0;
    }
  });
  for (int update = 0; update < 3000; ++update) {
    if (update % 3 != 0) {
      const std::scoped_lock lock(mutex);
      given.push_back(shard.values());
      changed.notify_one();
    }
    step(shard);
  }
  reader.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace sluice::ps
