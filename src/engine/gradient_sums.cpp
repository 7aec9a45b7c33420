#include "engine/gradient_sums.h"

#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "device/memory.h"
#include "optim/clip_norm.h"

namespace sluice::engine {

using pipeline::ParameterEntry;
using pipeline::Stage;

std::vector<GradientSums::Part> GradientSums::parts_of(const Stage& stage, int first_layer) {
  std::map<std::string, int> layer_of;  // a stage lays parameters out in another order than its layers
  int layer = first_layer;
  for (const auto& own : stage.layers()) {
    for (const nn::Parameter* parameter : own->parameters()) layer_of[parameter->name] = layer;
    ++layer;
  }
  std::vector<Part> parts;
  for (const ParameterEntry& entry : stage.parameters().entries()) {
    if (entry.is_trained && entry.tied_to.empty()) parts.push_back({layer_of.at(entry.name), entry.begin, entry.numel});
  }
  return parts;
}

GradientSums::GradientSums(const Composition& composition)
    : executor_(*composition.executor),
      layers_(composition.plan.frozen_layers),
      stages_(std::make_shared<std::vector<StageSums>>(executor_.stages())) {
  for (int s = 0; s < executor_.stages(); ++s) {
    const Stage& stage = executor_.stage(ReplicaId{0}, StageId{s});
    (*stages_)[s].parts = parts_of(stage, layers_);
    layers_ += static_cast<int>(stage.layers().size());
  }
  executor_.for_each_stage(Phase::kOptimizer, [stages = stages_](ReplicaId replica, StageId id, Stage& stage) {
    if (replica != ReplicaId{0}) return;
    const device::MemoryScope charge(device::MemoryKind::kGradients);
    const auto& parameters = stage.parameters();
    (*stages)[index(id)].flat = at::zeros({parameters.updated_elements()}, parameters.gradients().options());
  });
}

void GradientSums::add(double divisor) {
  executor_.for_each_stage(Phase::kOptimizer, [divisor, stages = stages_](ReplicaId replica, StageId id, Stage& stage) {
    if (replica != ReplicaId{0}) return;
    const at::NoGradGuard no_grad;
    const auto& parameters = stage.parameters();
    (*stages)[index(id)].flat.add_(parameters.gradients().narrow(0, 0, parameters.updated_elements()), 1.0 / divisor);
  });
}

std::vector<double> GradientSums::take() {
  const auto norms = std::make_shared<std::vector<double>>(layers_);
  executor_.for_each_stage(Phase::kOptimizer, [norms, stages = stages_](ReplicaId replica, StageId id, Stage&) {
    if (replica != ReplicaId{0}) return;
    const at::NoGradGuard no_grad;
    const StageSums& sums = (*stages)[index(id)];
    for (const Part& part : sums.parts)
      (*norms)[part.layer] += optim::sum_of_magnitudes(sums.flat.narrow(0, part.begin, part.numel));
    sums.flat.zero_();
  });
  return *norms;
}

}  // namespace sluice::engine
