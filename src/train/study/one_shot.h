// one_shot: a single evaluation or training step outside a run. Writes only the requested file, and never over an input
// or a checkpoint. Errors: ConfigError, DataError (batch does not fit the model), CheckpointError (weights do not),
// DivergedError (loss is not finite), StorageError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/scores.h"

namespace sluice::train {

struct EvaluationOptions {
  std::filesystem::path config_file;  // empty: the checkpoint's configuration
  std::vector<std::string> sets;      // "key=value", applied last
  std::filesystem::path checkpoint;   // a checkpoint or run directory; empty: `weights`
  std::filesystem::path weights;
  std::filesystem::path logits;       // output of {logits, labels} in data order; may be empty
  std::filesystem::path predictions;  // output of {question id: answer} as JSON; may be empty
  bool takes_average = false;         // evaluate the average of the checkpoint's weights
  bool of_validation = false;         // evaluate the held-out samples (data.validation), not the test set
};
struct Evaluation {
  ScoreSums sums;
  Scores scores;                     // of the task
  std::filesystem::path checkpoint;  // empty: weights were evaluated
  std::int64_t step = 0;
  std::int64_t samples = 0;
};
[[nodiscard]] Evaluation run_evaluation(const EvaluationOptions& options);

struct SingleStepOptions {
  std::filesystem::path config_file;  // must not be overwritten
  std::filesystem::path weights;      // empty: model.weights, or fresh weights
  // Safetensors: `inputs` [n, channels, height, width] and `targets` [n]. Text models: the fields of the task, at least
  // `inputs` [n, T] and its targets; task::kNoTarget is ignored. Empty: the first training batch.
  std::filesystem::path batch;
  // Safetensors: loss, logits and grad/<parameter> of the step; param/<parameter> and buffer/<name> after it.
  std::filesystem::path out;
};
double run_single_step(const config::Config& config, const SingleStepOptions& options);

}  // namespace sluice::train
