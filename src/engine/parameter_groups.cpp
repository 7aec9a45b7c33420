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
  for (const pipeline::ParameterEntry& entry : parameters.entries()) {
    if (entry.begin >= parameters.updated_elements()) break;
    ranges.push_back({.begin = entry.begin,
                      .end = entry.begin + entry.numel,
                      .decays = decays(entry.role, options),
                      .lr_factor = entry.is_classifier ? options.classifier_lr_factor : 1});
  }
  return ranges;
}

}  // namespace sluice::engine
