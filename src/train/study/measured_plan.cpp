#include "train/study/measured_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/median.h"
#include "core/text.h"
#include "report/record_lines.h"
#include "storage/scratch_folder.h"
#include "train/study/child.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::int64_t kNever = 1'000'000'000;  // steps

// Relative standard error of the median of normally distributed values: 1.25 sigma / sqrt(n).
double median_error(const std::vector<double>& values) {
  return 1.2533 * median_deviation(values) / std::sqrt(static_cast<double>(values.size())) / median(values);
}

class StepTimes {
 public:
  explicit StepTimes(int warm_up) : left_out_(warm_up) {}

  void take(const ordered_json& step) {
    if (left_out_-- > 0) return;
    const auto ms = [&](const char* key) { return step.value(key, 0.0) / 1e3; };
    steps_.push_back(ms("step_ms"));
    loads_.push_back(ms("load_ms"));
    computes_.push_back(ms("forward_ms") + ms("backward_ms"));
    sums_.push_back(ms("allreduce_exposed_ms"));
    updates_.push_back(ms("optimizer_ms"));
  }
  [[nodiscard]] MeasuredSteps medians() const {
    if (steps_.empty()) return {.failure = "it recorded no step", .exit_code = ExitCode::kBug};
    return {.step_s = median(steps_),
            .error = median_error(steps_),
            .load_s = median(loads_),
            .compute_s = median(computes_),
            .allreduce_exposed_s = median(sums_),
            .update_s = median(updates_)};
  }

 private:
  int left_out_;
  std::vector<double> steps_, loads_, computes_, sums_, updates_;
};

}  // namespace

std::uint64_t most_of_a_device(const ordered_json& summary) {
  std::uint64_t most = 0;
  const auto peaks = summary.find("peak_memory_bytes");
  if (peaks == summary.end() || !peaks->is_object()) return 0;
  for (const auto& [name, bytes] : peaks->items())  // names are devices ("cpu:0"), kinds, and the process
    if (name.find(':') != std::string::npos && bytes.is_number_unsigned())
      most = std::max(most, bytes.get<std::uint64_t>());
  return most;
}

config::Config short_run(config::Config config, const Measuring& how) {
  config::TrainConfig& train = config.train;
  const config::TrainConfig plain;
  train.steps = how.warm_up + how.steps;
  train.warmup_steps = 0;
  train.warmup_epochs = 0;
  train.lr_schedule = plain.lr_schedule;
  train.lr = std::min(train.lr, 1e-4);  // keeps the weights finite without a warm-up
  train.lr_min = 0;
  train.lr_decay_steps.clear();
  train.lr_decay_epochs.clear();
  train.lr_decay_every = train.lr_decay_every_epochs = 0;
  train.lr_power = plain.lr_power;
  train.lr_patience = plain.lr_patience;
  train.stop_patience = 0;
  train.eval_every_steps = kNever;
  train.eval_every_epochs = 1;
  train.eval_limit = 1;
  config.checkpoint = {.at_end = false};
  config.freeze = {};
  config.pipeline.changes.clear();
  config.model.weights.clear();
  config.log.tensorboard = config.log.csv = false;
  return config;
}

MeasuredSteps measure_steps(const config::Config& config, const Measuring& how) {
  const storage::ScratchFolder scratch("sluice-tune");
  const fs::path run = scratch.path() / "run";
  const ChildEnd end = train_in_child(short_run(config, how), run, how.limit_s);
  if (end.timed_out)
    return {.failure = concat("it took longer than ", human_duration(how.limit_s)),
            .timed_out = true,
            .exit_code = ExitCode::kPeer};
  if (end.exit_code != 0)
    return {.failure = concat("it ended with exit code ", end.exit_code, ": ", end.last_words),
            .exit_code = static_cast<ExitCode>(end.exit_code)};
  StepTimes times(how.warm_up);
  std::uint64_t peak = 0;
  (void)report::read_records(run / "metrics.jsonl", [&](const ordered_json& line, const std::string& event) {
    if (event == "step") times.take(line);
    if (event == "summary") peak = most_of_a_device(line);
  });
  MeasuredSteps steps = times.medians();
  steps.peak_bytes = peak;
  return steps;
}

}  // namespace sluice::train
