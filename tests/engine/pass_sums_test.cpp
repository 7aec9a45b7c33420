#include "engine/pass_sums.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "device/device.h"

namespace sluice::engine {
namespace {

pipeline::PassResult result_on(c10::Device device) {
  pipeline::PassResult result{{2, std::vector<pipeline::MicroBatchResult>(3)}};
  int number = 0;
  for (auto& of_replica : result.micro_batches) {
    for (auto& micro_batch : of_replica) {
      if (++number == 4) continue;  // it has not run
      micro_batch.has_run = true;
      micro_batch.loss = at::full({}, 0.1F * static_cast<float>(number), at::TensorOptions(at::kFloat)).to(device);
      micro_batch.score = at::tensor({number, 2 * number}, at::kLong).to(device);
      micro_batch.logits = at::full({number % 2 + 1, 3}, number, at::kFloat).to(device);  // of two shapes
    }
  }
  return result;
}

void expect_sums(c10::Device device) {
  const pipeline::PassResult result = result_on(device);
  double losses = 0;  // of the float32 numbers, in their order
  for (const int number : {1, 2, 3, 5, 6}) losses += static_cast<double>(0.1F * static_cast<float>(number));
  EXPECT_EQ(sum_of_losses(result), losses);
  const task::TaskPtr task = task::make_classification();
  EXPECT_EQ(sum_of_scores(result, *task), (std::vector<double>{17, 34}));
  EXPECT_EQ(sum_of_scores({}, *task), (std::vector<double>{0, 0})) << "of a process without samples";
  const at::Tensor logits = logits_in_order(result);
  EXPECT_TRUE(logits.is_cpu());
  const at::Tensor expected = at::tensor({1, 1, 2, 3, 3, 5, 5, 6}, at::kFloat).view({-1, 1}).expand({-1, 3});
  EXPECT_TRUE(at::equal(logits, expected));
}

TEST(PassSums, AddUpInTheOrderOfTheMicroBatches) { expect_sums(c10::kCPU); }

TEST(PassSums, OfAGpuAddUpAlike) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  expect_sums({c10::kCUDA, 0});
}

TEST(PassSums, WhatIsOnTheCpuIsNotCopied) {
  const at::Tensor tensor = at::ones({3});
  EXPECT_TRUE(on_cpu({tensor, at::ones({})}).front().is_same(tensor));
  EXPECT_TRUE(on_cpu({}).empty());
}

}  // namespace
}  // namespace sluice::engine
