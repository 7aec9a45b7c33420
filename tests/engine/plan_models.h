// plan_models: small models of enough layers for every plan that is compared with one device (plans_test.cpp), and the
// running statistics that a step should leave in the one that has batch-norm, by plain operations.
#pragma once

#include <array>
#include <string>

#include "engine/state.h"
#include "nn/layer.h"
#include "pipeline/micro_batch.h"
#include "pipeline/split.h"

namespace sluice::engine::test {

inline constexpr int kPlanLayers = 8;  // as many stages as the deepest plan has: 4 devices of 2
inline constexpr std::array kPlanModels{"mlp", "residual", "vit", "gpt2"};

[[nodiscard]] pipeline::LayerList make_plan_layers(const std::string& model, at::ScalarType dtype);

// Of "residual" after a training step over `batch`, in float64. before: its parameters and buffers. What should be:
// kMicro: each replica takes in its own micro-batches one after the other; then all have the mean over the replicas,
// weighted by their samples, and as many batches as the first. kDeferred: all take in the mini-batch at once, of which
// each micro-batch was normalised by itself. kSync: all take in the first micro-batches of all replicas as one, then
// the second ones ...
[[nodiscard]] storage::TensorMap residual_statistics(const storage::TensorMap& before,
                                                     const pipeline::MicroBatch& batch, int replicas, int chunks,
                                                     nn::BatchNormMode mode);

}  // namespace sluice::engine::test
