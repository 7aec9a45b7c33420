// tune_batch: the part of `sluice tune` in which the global batch may change: its options, and what it says. Not here:
// what is proposed (train/study/batch_tuning.h).
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
  // Errors: ConfigError for a range that is none, and for options that go with --allow-batch-change alone.
  [[nodiscard]] train::BatchTuneOptions parse() const;
};

[[nodiscard]] nlohmann::ordered_json json_of_batch(const train::BatchTuning& tuning);
// out: the file that has the proposal.
[[nodiscard]] std::string text_of_batch(const train::BatchTuning& tuning, const std::string& out);

}  // namespace sluice::app
