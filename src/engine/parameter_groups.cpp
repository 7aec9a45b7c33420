#include "engine/parameter_groups.h"

#include <algorithm>

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
  const auto& entries = parameters.entries();
  for (std::size_t i = 0; i < entries.size() && entries[i].begin < parameters.updated_elements(); ++i) {
    const pipeline::ParameterEntry& entry = entries[i];
    const std::int64_t next = i + 1 < entries.size() ? entries[i + 1].begin : parameters.updated_elements();
    ranges.push_back({.begin = entry.begin,
                      .end = std::min(next, parameters.updated_elements()),
                      .decays = decays(entry.role, options),
                      .lr_factor = entry.is_classifier ? options.classifier_lr_factor : 1});
  }
  return ranges;
}

}  // namespace sluice::engine
