// example_profile: a profile in which no two numbers are the same, for the tests of profiles.
#pragma once

#include "profiler/layer_profile.h"

namespace sluice::profiler::test {

// All its numbers are one line, with more of each.
inline LayerBytes bytes_line(std::int64_t samples, std::uint64_t fixed, std::uint64_t per_sample) {
  const auto line = [&](std::uint64_t more) { return AffineBytes{fixed + more, per_sample}; };
  return {.samples = samples,
          .saved = line(0),
          .saves_input = samples > 1,
          .saves_output = samples > 4,
          .loss = line(1),
          .loss_working = line(2),
          .stash = line(3),
          .stashes_input = samples > 4,
          .stashes_output_gradient = samples > 1,
          .working = {line(4), line(5), line(6), line(7), line(8), line(9)},
          .transformed = fixed,
          .working_once = WorkingBytes{line(14), line(15), line(16), line(17), line(18), line(19)}};
}

inline MeasuredLayer example_layer() {
  MeasuredLayer layer;
  layer.name = "layer1.0";
  layer.defers_weights = true;
  layer.cost = {.forward = {1e-5, 0.1 + 0.2, 0.01},
                .input_gradient = {2e-5, 3e-7, 0.02},
                .weight_gradient = {0, 1.0 / 3, 0},
                .backward = {2e-5, 2e-4, 0.03},
                .first_forward_s = 1e-3,
                .first_backward_s = 2e-3,
                .slowdown = 1.25,
                .input_bytes = 2048,
                .output_bytes = 4096,
                .saved_bytes = {128, 12'288},
                .saves_input = true,
                .saves_output = false,
                .loss_bytes = {1, 40},
                .loss_working = {7, 80},
                .stash_bytes = {2, 50},
                .stashes_input = true,
                .stashes_output_gradient = true,
                .working = {{3, 60}, {4, 70}, {5, 80}, {6, 90}, {7, 100}, {8, 110}},
                .transformed_bytes = 3000,
                .working_once = WorkingBytes{{13, 60}, {14, 70}, {15, 80}, {16, 90}, {17, 100}, {18, 110}},
                .parameter_bytes = 1000,
                .buffer_bytes = 64,
                .gradient_bytes = 1000,
                .optimizer_bytes = 2000};
  layer.times = {{1, 1e-4, 2e-4, 3e-4, 4.5e-4}, {16, 1e-3, 2e-3, 3e-3, 4.5e-3}};
  layer.times.push_back({.samples = 32,
                         .forward_s = 4e-3,
                         .input_gradient_s = 5e-3,
                         .weight_gradient_s = 6e-3,
                         .backward_s = 11e-3,
                         .timed_by = kTimedByCupti,
                         .gpu = GpuTimes{{5e-3, 1e-5, 4e-3}, {6e-3, 2e-5, 5e-3}, {7e-3, 3e-5, std::nullopt}, true}});
  layer.bytes = {bytes_line(1, 100, 10), bytes_line(4, 50, 20), bytes_line(16, 1000, 5), bytes_line(32, 30, 60)};
  return layer;
}

inline LayerProfile example() {
  LayerProfile profile;
  profile.fingerprint = {.cpu = "a \"CPU\"",
                         .cores = 2,
                         .threads_per_device = 1,
                         .instruction_set = "avx2",
                         .memory_bytes = 1ULL << 40,
                         .gpus = {"one", "two"},
                         .device = "cpu:0",
                         .sluice = "1.0",
                         .libtorch = "2.11.0",
                         .precision = "fp32",
                         .winograd = "4x4",
                         .tf32 = true,
                         .optimizer = "adamw",
                         .batch_norm = "micro",
                         .model = {.name = "vit",
                                   .size = "nano",
                                   .stem = "cifar",
                                   .classes = 10,
                                   .channels = 3,
                                   .image_size = 32,
                                   .patch_size = 4,
                                   .dropout = 0.1}};
  profile.micro_batch = 16;
  profile.contenders = 2;
  profile.layers.push_back(example_layer());
  profile.stage_links = {{0, 1, "cpu:0", "cpu:1", {1e-6, std::nullopt, 0}},
                         {1, 2, "cpu:1", "cuda:0", {1e-5, 1e10, 0.1}}};
  profile.all_reduces = {{2, 3, {1e-4, 1.25e7, 0.3}}, {2, 4, {2e-4, 1e7, 0.1}}};
  profile.update = AffineCost{1e-6, 2e-10, 0.05};
  profile.update_together = AffineCost{2e-6, 3e-10, 0.04};
  profile.load = LoadCost{3e-4, 2e-4};
  profile.server = MeasuredServer{
      {{3e-4, 2e9, 0.2}, {4e-4, 3e9, 0.15}, {5e-5, 4e-10, 0.12}, {6e-6, 5e-10, 0.11}}, "bf16", "topk", 0.02};
  profile.step = {10, 0.5, 0.48, 0.45, 32.0, 0.4, 0.03, 0.02, 0.36, 0.32, 0.01, 0.005};
  profile.stage_memory = {{0, "cpu:0", 1000, 1001}};
  profile.device_memory = {{"cpu:0", 2000, 2002}};
  return profile;
}

}  // namespace sluice::profiler::test
