// The result has the same bits for any number of threads.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/concat.h"
#include "ps/server.h"
#include "ps/shard_set.h"

namespace sluice::ps {
namespace {

constexpr int kWorkers = 3, kShards = 4, kParameters = 5;
constexpr std::int64_t kElements = 220'001;  // of a parameter
static_assert(kParameters * kElements * sizeof(float) >= kLeastBytesForThreads, "else one thread does it all");

Layout layout() {
  std::vector<Parameter> parameters;
  for (int p = 0; p < kParameters; ++p) parameters.push_back({concat("p", p), {kElements}, {1}});
  return make_layout(parameters, {{"mean", 3}}, {.shards = kShards, .split_bound = kElements / 2});
}

at::Tensor numbers(std::mt19937_64& random, std::int64_t size) {
  const double frequency = 0.1 + static_cast<double>(random() % 1000) / 700, phase = static_cast<double>(random() % 7);
  return (at::arange(size, at::kFloat) * frequency + phase).sin();
}

Tensors tensors_of(const Layout& of, std::mt19937_64& random) {
  Tensors tensors{.statistics = numbers(random, of.statistics_elements())};
  for (const Shard& shard : of.shards) tensors.shards.push_back(numbers(random, shard.elements));
  return tensors;
}

struct Outcome {
  ServerState state;
  std::vector<double> norms;
};

Outcome train(const ServerOptions& options) {
  std::mt19937_64 random(5);
  const Layout of = layout();
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : of.parameters) values.push_back(numbers(random, parameter.elements()));
  Server server(of, values, at::zeros({3}), options);
  Outcome outcome;
  for (int w = 0; w < kWorkers; ++w) (void)server.join(WorkerId{w}, 0);
  std::vector<std::int64_t> pushed(kWorkers);
  for (int turn = 0; turn < 12; ++turn) {
    const int w = static_cast<int>(random() % kWorkers);
    if (!server.may_begin(WorkerId{w})) continue;
    const std::int64_t examples = 1 + static_cast<std::int64_t>(random() % 9);
    const bool has_steps = options.policy.payload != Payload::kGradients;
    const PushRecord record{.worker = WorkerId{w},
                            .incarnation = 1,
                            .sequence = ++pushed[w],
                            .base_version = server.begin(WorkerId{w}),
                            .examples = examples,
                            .targets = 3 * examples,
                            .local_steps = has_steps ? 2 + w : 0,
                            .factor = 1.0 / (1 + w),
                            .payload = options.policy.payload};
    EXPECT_EQ(server.push(record, tensors_of(of, random), turn), PushAnswer::kCommitted);
    for (const UpdateRecord& done : server.advance(turn)) {
      EXPECT_FALSE(done.is_dropped);
      outcome.norms.push_back(done.gradient_norm);
    }
  }
  outcome.state = server.state();
  return outcome;
}

class ServerThreads : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }  // as in a server's thread
  void TearDown() override { at::set_num_threads(before_); }

  const int before_ = at::get_num_threads();
};

TEST_F(ServerThreads, DoNotChangeABitOfAnyPolicysUpdates) {
  for (const std::string& policy : policy_names()) {
    for (const double clip_norm : {0.0, 0.5}) {
      SCOPED_TRACE(concat(policy, ", clip norm ", clip_norm));
      ServerOptions options{.policy = preset_policy(policy, kWorkers),
                            .optimizer = {.kind = "momentum", .nesterov = true},
                            .lr = [](const ServerProgress& at) { return 0.1 / static_cast<double>(1 + at.version); },
                            .clip_norm = clip_norm};
      const Outcome alone = train(options);
      ASSERT_FALSE(alone.norms.empty());
      for (const int threads : {2, 4}) {
        options.threads = threads;
        const Outcome together = train(options);
        EXPECT_EQ(together.norms, alone.norms);
        for (int s = 0; s < kShards; ++s)
          EXPECT_TRUE(at::equal(together.state.weights.shards[s], alone.state.weights.shards[s])) << "shard " << s;
        EXPECT_TRUE(at::equal(together.state.weights.statistics, alone.state.weights.statistics));
        for (std::size_t i = 0; i < alone.state.optimizer.size(); ++i) {
          for (int s = 0; s < kShards; ++s)
            EXPECT_TRUE(at::equal(together.state.optimizer[i].second[s], alone.state.optimizer[i].second[s]));
        }
      }
    }
  }
}

// A push with one shard that is not finite, and finite pushes of which the sum of one shard is not.
TEST_F(ServerThreads, LeaveEverythingAsItWasWhereOneShardIsNotFinite) {
  const Layout of = layout();
  std::mt19937_64 random(7);
  for (const char* const policy : {"bsp", "local_sgd"}) {
    Server server(of, std::vector<at::Tensor>(of.parameters.size(), at::ones({kElements})), at::zeros({3}),
                  {.policy = preset_policy(policy, 2),
                   .optimizer = {.kind = "sgd"},
                   .lr = [](const auto&) { return 0.1; },
                   .threads = kShards});
    const Payload payload = server.policy().payload;
    const auto push = [&](int worker, std::size_t shard, float value) {
      Tensors tensors = tensors_of(of, random);
      tensors.shards[shard][17] = value;
      const PushRecord record{.worker = WorkerId{worker},
                              .incarnation = 1,
                              .sequence = 1,
                              .examples = 4,
                              .targets = 4,
                              .local_steps = payload == Payload::kGradients ? 0 : 1,
                              .payload = payload};
      return server.push(record, std::move(tensors), 0);
    };
    for (const int worker : {0, 1}) (void)server.join(WorkerId{worker}, 0);
    for (const int worker : {0, 1}) {
      (void)server.begin(WorkerId{worker});
      EXPECT_EQ(push(worker, 3, std::numeric_limits<float>::quiet_NaN()), PushAnswer::kRefused);
      EXPECT_EQ(push(worker, 2, 3e38F), PushAnswer::kCommitted);
    }
    const auto done = server.advance(0);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_TRUE(done[0].is_dropped);
    for (const at::Tensor& shard : server.weights().tensors.shards) EXPECT_TRUE(at::equal(shard, at::ones_like(shard)));
  }
}

}  // namespace
}  // namespace sluice::ps
