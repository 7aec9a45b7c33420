// tune_batch: options and output of `sluice tune --allow-batch-change` (train/study/batch_tuning.h).
#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "train/study/batch_tuning.h"

namespace sluice::app {

struct BatchArguments {
  train::BatchTuneOptions options;
  std::string noise_from, range;

  void add_to(CLI::App& command);
  // Errors: ConfigError for an invalid range, and for options that require --allow-batch-change.
  [[nodiscard]] train::BatchTuneOptions parse() const;
};

[[nodiscard]] nlohmann::ordered_json json_of_batch(const train::BatchTuning& tuning);
[[nodiscard]] std::string text_of_batch(const train::BatchTuning& tuning, const std::string& out);

}  // namespace sluice::app
