#include "engine/parameter_groups.h"

namespace sluice::engine {
namespace {

bool decays(nn::ParameterRole role, const GroupOptions& options) {
  switch (role) {
    case nn::ParameterRole::kNorm: return options.decays_norms;
    case nn::ParameterRole::kBias: return options.decays_biases;
    case nn::ParameterRole::kPosition: return options.decays_positions;
    case nn::ParameterRole::kWeight: return true;
  }
  return true;
}

}  // namespace

std::vector<optim::UpdateRange> update_ranges(const pipeline::FlatParameters& parameters, const GroupOptions& options) {
  std::vector<optim::UpdateRange> ranges;
  for (const pipeline::ParameterSlot& slot : parameters.slots()) {
    if (slot.begin >= parameters.updated_elements()) break;
    ranges.push_back({.begin = slot.begin,
                      .end = slot.begin + slot.numel,
                      .decays = decays(slot.role, options),
                      .lr_factor = slot.is_classifier ? options.classifier_lr_factor : 1});
  }
  return ranges;
}

}  // namespace sluice::engine
