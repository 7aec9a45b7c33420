// The server's updates beside the formulas of their papers, in float64.
#include "ps/server.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include <ATen/ATen.h>

namespace sluice::ps {
namespace {

const auto kDouble = at::TensorOptions().dtype(at::kDouble);
const std::vector<std::int64_t> kSizes{7, 20, 1, 12};

at::Tensor numbers(std::mt19937& random, std::int64_t size) {
  at::Tensor tensor = at::empty({size}, kDouble);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < size; ++i) tensor[i] = normal(random);
  return tensor;
}

std::vector<at::Tensor> parameters(std::mt19937& random) {
  std::vector<at::Tensor> values;
  for (const std::int64_t size : kSizes) values.push_back(numbers(random, size));
  return values;
}

struct Pushed {
  PushRecord record;
  std::vector<at::Tensor> values;  // [parameter]
  at::Tensor statistics;
};

class ServerTest : public testing::TestWithParam<int> {  // shards
 protected:
  Layout layout() const {
    std::vector<Parameter> named;
    for (const std::int64_t size : kSizes) named.push_back({"p" + std::to_string(named.size()), {size}, {1}});
    return make_layout(named, {{"mean", 3}}, {.shards = GetParam(), .split_bound = 8, .dtype = at::kDouble});
  }
  Server make_server(const ServerOptions& options) {
    Server server(layout(), start_, start_statistics_, options);
    for (int w = 0; w < options.policy.workers; ++w) (void)server.join(WorkerId{w}, 0);
    return server;
  }
  Pushed make_push(int worker, std::int64_t sequence, Payload payload, std::int64_t examples) {
    return {{.worker = WorkerId{worker},
             .incarnation = 1,
             .sequence = sequence,
             .base_version = sequence - 1,
             .examples = examples,
             .targets = 2 * examples,
             .local_steps = payload == Payload::kGradients ? 0 : worker + 1,
             .factor = 1.0 / (1 + worker),
             .payload = payload},
            parameters(random_),
            numbers(random_, 3)};
  }
  static void push(Server& server, const Pushed& pushed) {
    (void)server.begin(pushed.record.worker);
    EXPECT_EQ(server.push(pushed.record, {to_shards(server.layout(), pushed.values), pushed.statistics.clone()}, 0),
              PushAnswer::kCommitted);
  }
  void expect_values(const Server& server, const std::vector<at::Tensor>& expected, const char* what) {
    const auto values = from_shards(server.layout(), server.weights().tensors.shards);
    for (std::size_t p = 0; p < values.size(); ++p)
      EXPECT_LE((values[p] - expected[p]).abs().max().item<double>(), 1e-13) << what << " p" << p;
  }

  std::mt19937 random_{11};
  std::vector<at::Tensor> start_ = parameters(random_);
  at::Tensor start_statistics_ = numbers(random_, 3);
};

TEST_P(ServerTest, BulkSynchronousGradientsAreOneGradientOfTheMeanLoss) {
  const optim::OptimizerOptions momentum{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};
  Server server = make_server({.policy = preset_policy("bsp", 3),
                               .optimizer = momentum,
                               .lr = [](const auto&) { return 0.1; },
                               .clip_norm = 0.5});
  std::vector<at::Tensor> values, buffers;
  at::Tensor statistics = start_statistics_.clone();
  for (const at::Tensor& start : start_) {
    values.push_back(start.clone());
    buffers.push_back(at::zeros_like(start));
  }
  for (int round = 1; round <= 3; ++round) {
    std::vector<Pushed> pushes;
    for (const int w : {2, 0, 1}) pushes.push_back(make_push(w, round, Payload::kGradients, w == 0 ? 1 : 7 * w));
    for (const Pushed& one : pushes) push(server, one);
    const auto done = server.advance(0);
    ASSERT_EQ(done.size(), 1U);
    double squares = 0;
    std::vector<at::Tensor> gradients;
    for (std::size_t p = 0; p < kSizes.size(); ++p) {
      gradients.push_back((pushes[0].values[p] + pushes[1].values[p] + pushes[2].values[p]) / (2.0 * (14 + 1 + 7)));
      squares += gradients[p].square().sum().item<double>();
    }
    EXPECT_NEAR(done[0].gradient_norm, std::sqrt(squares), 1e-13);
    const double clipped = std::min(1.0, 0.5 / (std::sqrt(squares) + 1e-6));  // as torch.nn.utils.clip_grad_norm_
    for (std::size_t p = 0; p < kSizes.size(); ++p) {
      buffers[p] = 0.9 * buffers[p] + clipped * gradients[p] + 0.01 * values[p];
      values[p] = values[p] - 0.1 * buffers[p];
    }
    expect_values(server, values, "bsp");
    statistics += (14 * pushes[0].statistics + 1 * pushes[1].statistics + 7 * pushes[2].statistics) / 22.0;
    EXPECT_LE((server.weights().tensors.statistics - statistics).abs().max().item<double>(), 1e-13);
    EXPECT_EQ(server.progress().version, round);
    EXPECT_EQ(server.progress().examples, 22 * round);
  }
}

TEST_P(ServerTest, TwoPushesMakeTheSameBitsInEitherOrder) {
  for (int round = 0; round < 20; ++round) {
    const Pushed one = make_push(0, 1, Payload::kGradients, 3 + round), other = make_push(1, 1, Payload::kGradients, 7);
    std::vector<Weights> made;
    for (const auto& pushes : {std::vector{one, other}, std::vector{other, one}}) {
      Server server = make_server({.policy = preset_policy("bsp", 2), .lr = [](const auto&) { return 0.1; }});
      for (const Pushed& pushed : pushes) push(server, pushed);
      ASSERT_EQ(server.advance(0).size(), 1U);
      made.push_back(server.weights());
    }
    EXPECT_TRUE(at::equal(made[0].tensors.statistics, made[1].tensors.statistics));
    for (std::size_t shard = 0; shard < made[0].tensors.shards.size(); ++shard)
      EXPECT_TRUE(at::equal(made[0].tensors.shards[shard], made[1].tensors.shards[shard]));
  }
}

TEST_P(ServerTest, WeightsOfDualBatchSizesAreMixedOneAfterTheOther) {
  for (const Merge merge : {Merge::kHalf, Merge::kBesides, Merge::kMean}) {
    SyncPolicy policy = preset_policy("dual_batch", 2);
    policy.merge = merge;
    policy.quorum = 0;
    Server server = make_server({.policy = policy, .lr = [](const auto&) { return 0.0; }});
    const Pushed first = make_push(0, 1, Payload::kWeights, 5), second = make_push(1, 1, Payload::kWeights, 9);
    push(server, second);
    push(server, first);
    ASSERT_EQ(server.advance(0).size(), 1U);
    const double f = first.record.factor, g = second.record.factor;
    const auto merged = [&](const at::Tensor& w, const at::Tensor& a, const at::Tensor& b) -> at::Tensor {
      if (merge == Merge::kMean) return (f * a + g * b) / (f + g);
      if (merge == Merge::kBesides) return ((w + f * a) / (1 + f) + g * b) / (1 + g);
      return ((2 - g) * (((2 - f) * w + f * a) / 2) + g * b) / 2;
    };
    std::vector<at::Tensor> expected;
    for (std::size_t p = 0; p < kSizes.size(); ++p)
      expected.push_back(merged(start_[p], first.values[p], second.values[p]));
    expect_values(server, expected, "dual batch");
    const at::Tensor statistics = merged(start_statistics_, first.statistics, second.statistics);
    EXPECT_LE((server.weights().tensors.statistics - statistics).abs().max().item<double>(), 1e-14);
  }
}

TEST_P(ServerTest, DiLoCoIsAnOuterNesterovStepOnWhatWorkersHaveMoved) {
  const optim::OptimizerOptions nesterov{.kind = "momentum", .momentum = 0.9, .nesterov = true};
  Server server =
      make_server({.policy = preset_policy("diloco", 2), .optimizer = nesterov, .lr = [](const auto&) { return 0.7; }});
  std::vector<at::Tensor> values, buffers;
  for (const at::Tensor& start : start_) {
    values.push_back(start.clone());
    buffers.push_back(at::zeros_like(start));
  }
  for (int round = 1; round <= 3; ++round) {
    const Pushed a = make_push(0, round, Payload::kDelta, 6), b = make_push(1, round, Payload::kDelta, 10);
    push(server, a);
    push(server, b);
    ASSERT_EQ(server.advance(0).size(), 1U);
    const double of_a = 12.0 * 12 / 1, of_b = 20.0 * 20 / 2;  // targets^2 / steps
    for (std::size_t p = 0; p < kSizes.size(); ++p) {
      const at::Tensor moved = (of_a * a.values[p] + of_b * b.values[p]) / (of_a + of_b);
      buffers[p] = 0.9 * buffers[p] + moved;
      values[p] = values[p] - 0.7 * (moved + 0.9 * buffers[p]);
    }
    expect_values(server, values, "diloco");
  }
}

TEST_P(ServerTest, WhatIsNotFiniteOrCameBeforeChangesNothing) {
  Server server = make_server(
      {.policy = preset_policy("asp", 1), .optimizer = {.kind = "sgd"}, .lr = [](const auto&) { return 0.1; }});
  const auto answer = [&](const Pushed& pushed) {
    const PushAnswer answer =
        server.push(pushed.record, {to_shards(server.layout(), pushed.values), pushed.statistics}, 0);
    (void)server.advance(0);
    return answer;
  };
  (void)server.begin(WorkerId{0});
  const Pushed good = make_push(0, 1, Payload::kGradients, 4);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Pushed in_values = good, in_statistics = good;
    in_values.values = parameters(random_);
    in_values.values[3][11] = bad;
    in_statistics.statistics = at::full({3}, bad, kDouble);
    EXPECT_EQ(answer(in_values), PushAnswer::kRefused);
    EXPECT_EQ(answer(in_statistics), PushAnswer::kRefused);
    Pushed in_factor = good;
    in_factor.record.factor = bad;
    EXPECT_EQ(answer(in_factor), PushAnswer::kRefused);
  }
  for (const auto change :
       {+[](PushRecord& record) { record.examples = -1; }, +[](PushRecord& record) { record.targets = -1; },
        +[](PushRecord& record) { record.factor = 0; }}) {
    Pushed changed = good;
    change(changed.record);
    EXPECT_EQ(answer(changed), PushAnswer::kRefused);
  }
  expect_values(server, start_, "untouched");
  EXPECT_EQ(answer(good), PushAnswer::kCommitted) << "its number is still free";
  const auto after = from_shards(server.layout(), server.weights().tensors.shards);
  EXPECT_EQ(answer(good), PushAnswer::kDuplicate);
  expect_values(server, after, "once");
  EXPECT_EQ(server.progress().version, 1);
}

// The pushes are finite, but not their sum.
TEST_P(ServerTest, AnUpdateThatIsNotFiniteLeavesEverythingAsItWas) {
  for (const Payload payload : {Payload::kGradients, Payload::kWeights}) {
    SyncPolicy policy = preset_policy(payload == Payload::kGradients ? "bsp" : "local_sgd", 2);
    Server server = make_server(
        {.policy = policy, .optimizer = {.kind = "momentum"}, .lr = [](const auto&) { return 0.1; }, .clip_norm = 1});
    for (const int w : {0, 1}) {
      Pushed huge = make_push(w, 1, payload, 4);
      huge.values[1][3] = 1e308;
      if (payload == Payload::kGradients) huge.record.targets = 1;
      push(server, huge);
    }
    const auto done = server.advance(0);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_TRUE(done[0].is_dropped);
    expect_values(server, start_, "dropped");
    EXPECT_TRUE(at::equal(server.weights().tensors.statistics, start_statistics_));
    const ServerState state = server.state();
    ASSERT_EQ(state.optimizer.size(), 1U);
    for (const at::Tensor& momentum : state.optimizer[0].second) EXPECT_EQ(momentum.abs().sum().item<double>(), 0);
  }
}

TEST_P(ServerTest, WhatOthersHaveAddedToTheStatisticsStays) {
  Server server = make_server(
      {.policy = preset_policy("asp", 2), .optimizer = {.kind = "sgd"}, .lr = [](const auto&) { return 0.1; }});
  const Pushed slow = make_push(1, 1, Payload::kGradients, 4);  // its base version is 0
  (void)server.begin(WorkerId{1});
  at::Tensor expected = start_statistics_.clone();
  for (int number = 1; number <= 5; ++number) {
    const Pushed fast = make_push(0, number, Payload::kGradients, 4);
    push(server, fast);
    ASSERT_EQ(server.advance(0).size(), 1U);
    expected = expected + fast.statistics;
  }
  EXPECT_EQ(server.push(slow.record, {to_shards(server.layout(), slow.values), slow.statistics}, 0),
            PushAnswer::kCommitted);
  ASSERT_EQ(server.advance(0).size(), 1U);
  expected = expected + slow.statistics;
  EXPECT_LE((server.weights().tensors.statistics - expected).abs().max().item<double>(), 1e-13);
}

TEST_P(ServerTest, NobodysExamplesMakeAnUpdateThatChangesNothing) {
  Server server = make_server({.policy = preset_policy("bsp", 2),
                               .optimizer = {.kind = "adamw", .weight_decay = 0.1},
                               .lr = [](const auto&) { return 0.1; }});
  push(server, make_push(0, 1, Payload::kGradients, 0));
  push(server, make_push(1, 1, Payload::kGradients, 0));
  ASSERT_EQ(server.advance(0).size(), 1U);
  expect_values(server, start_, "no examples");
  EXPECT_TRUE(at::equal(server.weights().tensors.statistics, start_statistics_));
}

// A stand-in for another server's shards, which returns only their part of the norm.
class OtherNorm final : public OtherShards {
 public:
  void prepare(const ShardStep& step) override { was_asked = step.wants_norm; }
  [[nodiscard]] Prepared prepared() override { return {.squares = 36}; }
  void commit(const ShardStep&, const ShardUpdate& update) override { divisor = update.divisor; }
  void committed() override {}
  void remember(const ShardStep&, const ShardUpdate&) override {}
  void ask_for_state() override {}
  [[nodiscard]] ShardsState state() override { return {}; }

  bool was_asked = false;
  double divisor = 0;
};

TEST(ServerOfSeveral, ClipsByTheNormOverAllServers) {
  OtherNorm other;
  const Layout layout = make_layout({{"p", {8}, {1}}}, {}, {.shards = 2, .split_bound = 4, .dtype = at::kDouble});
  Server server(layout, {at::zeros({8}, kDouble)}, at::empty({0}, kDouble),
                {.policy = preset_policy("asp", 1),
                 .optimizer = {.kind = "sgd"},
                 .lr = [](const auto&) { return 1.0; },
                 .clip_norm = 2,
                 .others = {&other}});
  (void)server.join(WorkerId{0}, 0);
  (void)server.begin(WorkerId{0});
  ASSERT_EQ(server.shape().shards.size(), 1U);
  const at::Tensor own = at::full({server.shape().shards[0]}, 4.0, kDouble);
  const PushRecord record{.incarnation = 1, .sequence = 1, .examples = 2, .targets = 2};
  ASSERT_EQ(server.push(record, {{own.clone()}, at::empty({0}, kDouble)}, 0), PushAnswer::kCommitted);
  const auto done = server.advance(0);
  ASSERT_EQ(done.size(), 1U);
  const double norm = std::sqrt(own.square().sum().item<double>() + 36) / 2;
  EXPECT_TRUE(other.was_asked);
  EXPECT_NEAR(done[0].gradient_norm, norm, 1e-12);
  EXPECT_NEAR(other.divisor, 2 * norm / 2, 1e-5) << "all servers clip alike";
  const at::Tensor expected = own * (-2 / norm / 2);
  EXPECT_LE((server.weights().tensors.shards[0] - expected).abs().max().item<double>(), 1e-5);
}

TEST_P(ServerTest, TheRateMayFollowExamples) {
  Server server =
      make_server({.policy = preset_policy("asp", 1), .optimizer = {.kind = "sgd"}, .lr = [](const ServerProgress& at) {
                     return at.examples >= 8 ? 0.01 : 0.1;
                   }});
  std::vector<double> rates;
  for (int number = 1; number <= 4; ++number) {
    push(server, make_push(0, number, Payload::kGradients, 4));
    rates.push_back(server.advance(0).at(0).lr);
  }
  EXPECT_EQ(rates, (std::vector<double>{0.1, 0.1, 0.01, 0.01}));
}

INSTANTIATE_TEST_SUITE_P(Shards, ServerTest, testing::Values(1, 2, 3, 9));

}  // namespace
}  // namespace sluice::ps
