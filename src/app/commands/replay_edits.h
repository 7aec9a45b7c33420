// replay_edits: what the options of `sluice replay` say is to be changed of a step. Pure. Errors: ConfigError that
// names the option.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tune/step_edits.h"

namespace sluice::app {

// As on the command line; empty: not given.
struct ReplayEdits {
  std::vector<std::string> scale;  // "stage:1,forward=0.8"
  std::vector<std::string> add;    // "stage:1,forward=5ms"
  std::string bandwidth;           // "10Gbit/s"
  std::string latency;             // "50us"

  [[nodiscard]] bool are_given() const { return !scale.empty() || !add.empty() || !bandwidth.empty(); }
  // One for each, as they were given.
  [[nodiscard]] std::vector<std::string> texts() const;
  [[nodiscard]] tune::StepEdits parse() const;
};

}  // namespace sluice::app
