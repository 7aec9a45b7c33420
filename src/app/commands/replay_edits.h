// replay_edits: the edits that the options of `sluice replay` describe. Errors: ConfigError naming the option.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tune/step_edits.h"

namespace sluice::app {

struct ReplayEdits {
  std::vector<std::string> scale;  // "stage:1,forward=0.8"
  std::vector<std::string> add;    // "stage:1,forward=5ms"
  std::string bandwidth;           // "10Gbit/s"
  std::string latency;             // "50us"

  [[nodiscard]] bool are_given() const { return !scale.empty() || !add.empty() || !bandwidth.empty(); }
  [[nodiscard]] std::vector<std::string> texts() const;
  [[nodiscard]] tune::StepEdits parse() const;
};

}  // namespace sluice::app
