#include "pipeline/flat_parameters.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

TEST(FlatParameters, ViewsHoldTheOldValuesAndWriteThrough) {
  const auto reference = test::make_toy_layers(2, 3, 1);
  const auto layers = test::make_toy_layers(2, 3, 1);
  const FlatParameters flat(layers, ParamId{10}, at::kCPU, nullptr);
  ASSERT_EQ(flat.entries().size(), 4U);
  EXPECT_EQ(flat.entries()[0].id, ParamId{10});
  EXPECT_EQ(flat.entries()[3].name, "layer1.bias");
  EXPECT_TRUE(at::equal(layers[1]->parameters()[0]->value, reference[1]->parameters()[0]->value));
  flat.values().fill_(4.0);
  EXPECT_TRUE(at::equal(layers[0]->parameters()[1]->value.detach(), at::full({3}, 4.0, at::kDouble)));
}

TEST(FlatParameters, EveryParameterStartsOnACacheLine) {
  const auto layers = test::make_toy_layers(3, 5, 1);
  const FlatParameters flat(layers, ParamId{0}, at::kCPU, nullptr);
  for (const ParameterEntry& entry : flat.entries()) EXPECT_EQ(entry.begin * 8 % 64, 0) << entry.name;
}

TEST(FlatParameters, ReplicasShareValuesButNotGradients) {
  const auto first = test::make_toy_layers(1, 3, 1), second = test::make_toy_layers(1, 3, 2);
  const FlatParameters a(first, ParamId{0}, at::kCPU, nullptr);
  const FlatParameters b(second, ParamId{0}, at::kCPU, &a);
  EXPECT_EQ(a.values().data_ptr(), b.values().data_ptr());
  EXPECT_NE(a.gradients().data_ptr(), b.gradients().data_ptr());
  EXPECT_TRUE(at::equal(first[0]->parameters()[0]->value, second[0]->parameters()[0]->value));
}

TEST(FlatParameters, WhatIsNotTrainedComesLastAndHasNoGradient) {
  const auto layers = test::make_toy_layers(3, 5, 1);
  layers[0]->parameters()[1]->value.requires_grad_(false);
  layers[1]->parameters()[0]->value.requires_grad_(false);
  const FlatParameters flat(layers, ParamId{0}, at::kCPU, nullptr);
  std::int64_t trained = 0;
  for (std::size_t i = 0; i < flat.entries().size(); ++i) {
    const ParameterEntry& entry = flat.entries()[i];
    EXPECT_EQ(entry.is_trained, i < 4) << entry.name;
    EXPECT_EQ(flat.leaves()[i].requires_grad(), entry.is_trained) << entry.name;
    EXPECT_EQ(flat.leaves()[i].grad().defined(), entry.is_trained) << entry.name;
    EXPECT_LE(entry.begin + entry.numel, flat.values().numel()) << entry.name;
    if (entry.is_trained) trained = entry.begin + entry.numel;
  }
  EXPECT_EQ(flat.updated_elements(), flat.gradients().numel());
  EXPECT_GE(flat.gradients().numel(), trained);
  EXPECT_LT(flat.gradients().numel(), flat.values().numel());
}

// y = x W^T + b of ones: b's gradient is the number of samples, W's as much in each element.
TEST(FlatParameters, TheFirstGradientTakesItsPlaceAndLaterOnesAreAdded) {
  const auto layers = test::make_toy_layers(2, 3, 1);
  FlatParameters flat(layers, ParamId{0}, at::kCPU, nullptr);
  for (int pass = 0; pass < 2; ++pass) {
    flat.gradients().fill_(99);  // of the pass before
    flat.begin_gradients();
    at::Tensor expected;  // of the first entry, by autograd alone
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      const at::Tensor input = at::full({2, 3}, 0.5 + micro_batch + pass, at::kDouble);
      const at::Tensor loss = layers[0]->forward(input, {.training = true}).sum();
      const at::Tensor own = torch::autograd::grad({loss}, {flat.leaves()[0]}, {}, true).front();
      expected = micro_batch == 0 ? own : expected + own;
      loss.backward();
      flat.settle_gradient(0);
      EXPECT_EQ(flat.leaves()[0].grad().data_ptr(), flat.gradients().data_ptr());
      EXPECT_TRUE(at::equal(flat.leaves()[0].grad(), expected));
    }
    flat.settle_gradients();
    const ParameterEntry& last = flat.entries().back();  // nobody has run its layer
    EXPECT_TRUE(at::equal(FlatParameters::view(flat.gradients(), last), at::zeros(last.sizes, at::kDouble)));
    EXPECT_EQ(flat.leaves().back().grad().data_ptr(), FlatParameters::view(flat.gradients(), last).data_ptr());
  }
}

// As an addition to zeros does.
TEST(FlatParameters, AFirstGradientOfMinusZeroIsZero) {
  const auto layers = test::make_toy_layers(1, 3, 1);
  FlatParameters flat(layers, ParamId{0}, at::kCPU, nullptr);
  flat.begin_gradients();
  flat.leaves()[0].mutable_grad() = at::full(flat.entries()[0].sizes, -0.0, at::kDouble);
  flat.settle_gradients();
  EXPECT_FALSE(at::signbit(flat.gradients().narrow(0, 0, flat.entries()[0].numel)).any().item<bool>());
}

// Symptom: silently wrong gradients. Cause: a view with a version counter of its own hides the update from autograd.
TEST(FlatParameters, UpdatingTheFlatBufferUnderALiveGraphIsCaught) {
  const auto layers = test::make_toy_layers(1, 3, 1);
  const FlatParameters flat(layers, ParamId{0}, at::kCPU, nullptr);
  const at::Tensor input = at::ones({2, 3}, at::kDouble).requires_grad_();
  const at::Tensor loss = layers[0]->forward(input, {.training = true}).sum();
  {
    const at::NoGradGuard no_grad;
    flat.values().add_(1.0);
  }
  EXPECT_THROW(loss.backward(), c10::Error);
}

}  // namespace
}  // namespace sluice::pipeline
