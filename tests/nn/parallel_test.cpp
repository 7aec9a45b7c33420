#include "nn/parallel.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "nn/attention.h"
#include "nn/batch_norm.h"
#include "nn/compare.h"
#include "nn/gelu.h"

namespace sluice::nn {
namespace {

class Parallel : public testing::Test {
 protected:
  void TearDown() override { at::set_num_threads(before_); }
  int before_ = at::get_num_threads();
};

// at::parallel_for runs serially in files compiled without -fopenmp, without a warning.
TEST_F(Parallel, PiecesRunOnSeveralThreadsAtOnce) {
  at::set_num_threads(2);
  std::mutex mutex;
  std::condition_variable arrived;
  std::set<std::thread::id> threads;
  parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    arrived.notify_all();
    arrived.wait_for(lock, std::chrono::seconds(20), [&] { return threads.size() == 2; });
  });
  EXPECT_EQ(threads.size(), 2U);
}

TEST_F(Parallel, CoversTheRangeOnce) {
  at::set_num_threads(2);
  std::vector<int> seen(1001);
  parallel_for(0, 1001, 10, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  EXPECT_EQ(seen, std::vector<int>(1001, 1));
}

TEST_F(Parallel, PassesExceptionsOn) {
  at::set_num_threads(2);
  EXPECT_THROW(parallel_for(0, 2, 1, [](std::int64_t, std::int64_t) { throw std::runtime_error("piece"); }),
               std::runtime_error);
}

TEST_F(Parallel, KernelsGiveTheSameBitsOnOneAndTwoThreads) {
  at::manual_seed(9);
  const at::Tensor image = at::randn({16, 32, 20, 20}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor packed = at::randn({5, 33, 3 * 32}), values = at::randn({40000});
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    Tensors all;
    const auto add = [&](const Outcome& outcome) {
      all.push_back(outcome.y);
      all.insert(all.end(), outcome.gradients.begin(), outcome.gradients.end());
    };
    add(run_with_gradients(
        [](const Tensors& t) { return batch_norm_training(t[0], {}, t[1], t[2], 1e-5, Activation::kRelu).y; },
        {image, at::ones({32}), at::zeros({32})}));
    add(run_with_gradients([](const Tensors& t) { return self_attention(t[0], {.heads = 2, .site = "a"}, {}); },
                           {packed}));
    add(run_with_gradients([](const Tensors& t) { return nn::gelu(t[0]); }, {values}));
    return all;
  };
  const Tensors one = run(1), two = run(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << i;
}

}  // namespace
}  // namespace sluice::nn
