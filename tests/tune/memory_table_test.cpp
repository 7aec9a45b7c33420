// Which batches fit: beside every batch tried one by one, and sums by hand.
#include "tune/memory_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/divided_up.h"
#include "core/rng.h"
#include "tune/made_up_space.h"
#include "tune/memory_model.h"

namespace sluice::tune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kMost = 400;  // global batch
constexpr std::uint64_t kKiB = 1024;

// In KiB, so that what no layer has is not all of it.
std::vector<LayerCost> in_kib(std::vector<LayerCost> layers) {
  const auto scale = [](AffineBytes& bytes) { bytes.fixed *= kKiB, bytes.per_sample *= kKiB; };
  for (LayerCost& layer : layers) {
    for (AffineBytes* bytes :
         {&layer.saved_bytes, &layer.loss_bytes, &layer.loss_working, &layer.stash_bytes, &layer.working.forward,
          &layer.working.backward, &layer.working.input_gradient, &layer.working.weight_gradient,
          &layer.working.held_backward, &layer.working.held_input_gradient})
      scale(*bytes);
    for (std::uint64_t* bytes : {&layer.input_bytes, &layer.output_bytes, &layer.transformed_bytes,
                                 &layer.parameter_bytes, &layer.gradient_bytes, &layer.optimizer_bytes})
      *bytes *= kKiB;
  }
  return layers;
}

struct Shape {
  int devices = 1, replicas = 1;
  std::string schedule = "gpipe";
  Recompute recompute = Recompute::kNone;
  int virtual_stages = 1;
  bool shares_memory = true;
};

// Kernels change at 5 samples: fewer of them take a workspace that the others do not.
MemoryQuestion question_of(const Shape& shape, std::vector<LayerCost> layers) {
  const auto count = static_cast<int>(layers.size());
  MemoryQuestion question{.request = {.plan = {.replicas = shape.replicas,
                                               .chunks = 2,
                                               .global_batch = 16,
                                               .schedule = shape.schedule,
                                               .virtual_stages = shape.virtual_stages},
                                      .devices = shape.devices,
                                      .replicas = shape.replicas,
                                      .layers = count,
                                      .recompute = shape.recompute,
                                      .shares_memory = shape.shares_memory},
                          .measured = {1, 2, 4, 8}};
  question.costs_at = [layers = std::move(layers)](std::int64_t samples) {
    std::vector<LayerCost> more = layers;
    for (LayerCost& layer : more) layer.working.forward.fixed += 3000 * kKiB;
    if (samples <= 4) return MemoryCosts{more, more};
    return MemoryCosts{layers, samples < 8 ? more : layers};
  };
  return question;
}

MemoryQuestion random_question(RngStream& rng, const Shape& shape) {
  return question_of(shape, in_kib(test::made_up_layers(rng, 4, /*slow_down=*/false)));
}

const std::vector<Shape> kShapes{{.devices = 1},
                                 {.devices = 1, .replicas = 2, .recompute = Recompute::kLayer},
                                 {.devices = 2, .schedule = "1f1b"},
                                 {.devices = 2, .replicas = 2, .schedule = "zb-h1", .shares_memory = false},
                                 {.devices = 2, .schedule = "interleaved", .virtual_stages = 2}};

TEST(MemoryTable, ACellIsWhatItsPlanIsEstimatedToHold) {
  RngStream rng(7);
  for (const Shape& shape : kShapes) {
    MemoryQuestion question = random_question(rng, shape);
    question.limit = 6000 * kKiB;
    for (const std::int64_t batch : {4, 13, 32, 90, 300}) {
      for (const int chunks : {1, 2, 3, 4, 8}) {
        const MemoryCell cell = memory_cell(question, batch, chunks);
        Plan plan = cell.plan;
        if (cell.fit == Fit::kImpossible) continue;
        EXPECT_EQ(plan.global_batch, batch);
        EXPECT_EQ(plan.chunks, chunks);
        const auto samples = divided_up(divided_up(batch, std::int64_t{shape.replicas}), std::int64_t{chunks});
        const MemoryCosts costs = question.costs_at(samples);
        const auto most_of = [&](const std::vector<LayerCost>& layers) {
          return *estimate_bytes({layers, shape.shares_memory, /*processes=*/1}, plan);
        };
        EXPECT_EQ(cell.expected, most_of(costs.expected));
        const std::uint64_t most = most_of(costs.most);
        EXPECT_EQ(cell.bound, shape.shares_memory ? most + 64 * kKiB : divided_up(most, 9) * 10);
        EXPECT_EQ(cell.fit == Fit::kFits, cell.bound <= question.limit);
        EXPECT_GT(cell.bound, cell.expected);
      }
    }
  }
}

TEST(MemoryTable, TheLargestBatchIsThatOfEveryBatchTriedOneByOne) {
  RngStream rng(8);
  int found = 0, none = 0, at_the_end = 0;
  for (int round = 0; round < 12; ++round) {
    for (const Shape& shape : kShapes) {
      MemoryQuestion question = random_question(rng, shape);
      question.limit = (2000 + rng.below(12'000)) * kKiB;
      for (const int chunks : {1, 2, 4, 6}) {
        std::int64_t largest = 0;
        for (std::int64_t batch = 1; batch <= kMost; ++batch)
          if (memory_cell(question, batch, chunks).fit == Fit::kFits) largest = batch;
        // A row that kMost cuts off is not whole.
        const std::int64_t row = std::int64_t{shape.replicas} * chunks;
        if (largest == kMost) largest = kMost / row * row;
        const auto cell = largest_batch(question, chunks, kMost);
        ASSERT_EQ(cell ? cell->global_batch : 0, largest) << shape.schedule << ", chunks " << chunks;
        ++(largest == 0 ? none : largest == kMost / row * row ? at_the_end : found);
        EXPECT_EQ(cell ? cell->global_batch % row : 0, 0);
      }
    }
  }
  EXPECT_GT(found, 50);
  EXPECT_GT(none, 5);
  EXPECT_GT(at_the_end, 0);
}

TEST(MemoryTable, BatchesOfOneLayerAreArithmetic) {
  // 1000 KiB of state, and each sample keeps 10 KiB from forward to backward.
  MemoryQuestion question =
      question_of({}, in_kib({{.saved_bytes = {.per_sample = 10}, .parameter_bytes = 600, .gradient_bytes = 400}}));
  question.costs_at = [costs = question.costs_at(8).expected](std::int64_t) { return MemoryCosts{costs, costs}; };
  question.limit = (1000 + 10 * 37) * kKiB + kSmallTensors;
  EXPECT_EQ(memory_cell(question, 37, 1).fit, Fit::kFits);
  EXPECT_EQ(memory_cell(question, 38, 1).fit, Fit::kOutOfMemory);
  EXPECT_EQ(largest_batch(question, 1)->global_batch, 37);
  EXPECT_EQ(largest_batch(question, 4)->global_batch, 36) << "gpipe keeps them all";
  question.request.plan.schedule = "1f1b";
  EXPECT_EQ(largest_batch(question, 4)->global_batch, 4 * 37) << "1f1b keeps one";
  question.limit -= 1;
  EXPECT_EQ(largest_batch(question, 1)->global_batch, 36);
  question.limit = 1000 * kKiB;
  EXPECT_FALSE(largest_batch(question, 1).has_value());
}

TEST(MemoryTable, WhatCannotBeSaysWhy) {
  RngStream rng(9);
  MemoryQuestion question = random_question(rng, {.devices = 2, .schedule = "dualpipe-v", .virtual_stages = 2});
  question.limit = std::uint64_t{1} << 40;
  const MemoryCell odd = memory_cell(question, 32, 1);
  EXPECT_EQ(odd.fit, Fit::kImpossible);
  EXPECT_THAT(odd.why, HasSubstr("dualpipe-v"));
  EXPECT_FALSE(largest_batch(question, 1).has_value());
  const MemoryCell few = memory_cell(question, 3, 4);
  EXPECT_EQ(few.fit, Fit::kImpossible);
  EXPECT_THAT(few.why, HasSubstr("fewer than 4 samples"));
  EXPECT_EQ(memory_cell(question, 4, 4).fit, Fit::kFits);
  question = random_question(rng, {.replicas = 2});
  question.limit = std::uint64_t{1} << 40;
  EXPECT_EQ(memory_cell(question, 7, 4).fit, Fit::kImpossible) << "one replica has three";
  EXPECT_EQ(memory_cell(question, 8, 4).fit, Fit::kFits);
}

TEST(MemoryTable, AnOpenCutIsTheOneThatARunWouldHave) {
  RngStream rng(10);
  for (int round = 0; round < 10; ++round) {
    MemoryQuestion question = random_question(rng, {.devices = 2, .schedule = "1f1b", .recompute = Recompute::kOpen});
    question.limit = 9000 * kKiB;
    question.request.memory_limit = question.limit / 10 * 9;
    PlanRequest request = question.request;
    request.plan.global_batch = 64, request.plan.chunks = 4;
    EXPECT_EQ(memory_cell(question, 64, 4).plan, make_plan(request, question.costs_at(16).expected));
  }
}

TEST(MemoryTable, ItsListsGoToTheFirstBatchThatDoesNotFit) {
  MemoryQuestion question =
      question_of({.replicas = 2}, in_kib({{.saved_bytes = {.per_sample = 10}, .parameter_bytes = 1}}));
  question.request.plan.global_batch = 24;
  question.request.plan.chunks = 3;
  EXPECT_THAT(usual_chunks(question), ElementsAre(1, 2, 3, 4, 8));
  question.limit = 5000 * kKiB;  // gpipe: about 490 samples of a replica at once
  EXPECT_THAT(usual_batches(question, {1, 2}), ElementsAre(3, 6, 12, 24, 48, 96, 192, 384, 768, 1536));
  question.limit = 1;
  EXPECT_THAT(usual_batches(question, {1}), ElementsAre(3, 6, 12, 24));
}

}  // namespace
}  // namespace sluice::tune
