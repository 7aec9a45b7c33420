// one_shot: a single evaluation or a single training step outside a run: to look at a checkpoint, or to compare with
// another framework. Nothing is written but the file that was asked for, and never over a file that is read or that
// belongs to a checkpoint.
// Errors: ConfigError, DataError (a batch that does not fit the model), CheckpointError (weights that do not),
// DivergedError (weights whose loss is not finite), StorageError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "nn/loss.h"

namespace sluice::train {

struct EvaluationOptions {
  std::filesystem::path config_file;  // empty: the configuration that the checkpoint was made with
  std::vector<std::string> sets;      // "key=value", on top of it
  std::filesystem::path checkpoint;   // a checkpoint or run directory; empty: `weights`
  std::filesystem::path weights;      // a safetensors file
  std::filesystem::path logits;       // when set: receives {logits, labels} of the samples in data order
  bool takes_average = false;         // of the checkpoint's weights, instead of them
  bool of_validation = false;         // of what data.validation holds out, instead of the test set
};
struct Evaluation {
  EvalCounts counts;
  std::filesystem::path checkpoint;  // the one that was found; empty: none, weights
  std::int64_t step = 0;             // of the checkpoint
  std::optional<double> perplexity;  // of texts
};
[[nodiscard]] Evaluation run_evaluation(const EvaluationOptions& options);

struct SingleStepOptions {
  std::filesystem::path config_file;  // for refusing to write over it
  std::filesystem::path weights;      // empty: model.weights, or fresh weights
  // Safetensors with `inputs` [n, channels, height, width] and `targets` [n], or of tokens [n, T] both, targets of
  // kNoTarget left out; empty: the first training batch.
  std::filesystem::path batch;
  // Safetensors: loss, logits and grad/<parameter> of the step; param/<parameter> and buffer/<name> after it.
  std::filesystem::path out;
};
// Returns the mean loss.
double run_single_step(const config::Config& config, const SingleStepOptions& options);

}  // namespace sluice::train
