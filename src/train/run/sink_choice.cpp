#include "train/run/sink_choice.h"

#include <algorithm>
#include <array>

namespace sluice::train {

// TensorBoard compares runs by the keys that affect learning, not by where they ran.
report::SinkChoice sinks_of(const config::Config& config) {
  report::SinkChoice choice{.tensorboard = config.log.tensorboard, .csv = config.log.csv};
  for (const auto& [key, text] : config::values(config)) {
    constexpr std::array kTables{"model.", "data.", "train.", "pipeline.", "replicas.", "freeze."};
    if (std::ranges::any_of(kTables, [&](const char* table) { return key.starts_with(table); }))
      choice.settings.emplace_back(key, text);
  }
  return choice;
}

}  // namespace sluice::train
