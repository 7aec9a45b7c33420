// frozen_shapes: small models with their first layers frozen, in many plans, for tests of the engine.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/concat.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "models/model.h"

namespace sluice::engine::test {

inline const optim::OptimizerOptions kAdam{.kind = "adamw", .weight_decay = 0.1};

struct Shape {
  const char* model = "vit";
  int frozen = 3;
  int stages = 2;
  int replicas = 1;
  const char* schedule = "1f1b";
  int chunks = 2;
  nn::BatchNormMode batch_norm = nn::BatchNormMode::kMicro;

  [[nodiscard]] std::string text() const {
    return concat(model, ", ", frozen, " frozen layers, ", stages, " stages, ", replicas, " replicas, ", schedule, ", ",
                  chunks, " chunks, batch-norm mode ", static_cast<int>(batch_norm));
  }
};

inline Plan plan_of(const Shape& shape) {
  Plan plan{.replicas = shape.replicas,
            .chunks = shape.chunks,
            .global_batch = 16,
            .schedule = shape.schedule,
            .frozen_layers = shape.frozen};
  const int trained = models::count_layers(small_model(shape.model)) - shape.frozen;
  plan.partition.layers_per_stage.assign(shape.stages, trained / shape.stages);
  plan.partition.layers_per_stage.back() += trained % shape.stages;
  plan.recompute.assign(shape.stages, false);
  return plan;
}

inline pipeline::LayerList layers_of(const Shape& shape) {
  const double dropout = shape.model == std::string("resnet8") ? 0 : 0.1;
  return models::make_model(small_model(shape.model, dropout)).layers;
}

inline EngineOptions options_of(const Shape& shape, std::shared_ptr<Communicators> communicators = nullptr,
                                const optim::OptimizerOptions& optimizer = kAdam) {
  return {.compose = {.model_name = shape.model,
                      .make_layers = [shape] { return layers_of(shape); },
                      .numerics = {.batch_norm = shape.batch_norm},
                      .optimizer = optimizer,
                      .communicators = std::move(communicators)},
          .step = {.seed = 7, .numerics = {.batch_norm = shape.batch_norm}, .clip_norm = 0.5},
          .devices_of = [](const Plan& plan) {
            DeviceChoice choice;
            for (int i = 0; i < plan.replicas * plan.devices(); ++i)
              choice.devices.push_back({device::DeviceKind::kCpu, i});
            return choice;
          }};
}

}  // namespace sluice::engine::test
