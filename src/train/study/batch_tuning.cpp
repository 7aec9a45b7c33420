#include "train/study/batch_tuning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "report/record_lines.h"
#include "storage/scratch_folder.h"
#include "train/study/child.h"
#include "train/study/measured_plan.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kLeastNoiseSteps = 40, kMostNoiseSteps = 200;  // of a separate run
constexpr double kClearGain = 1.1;                           // two predictions, each off by about 5 %
constexpr int kMostBatches = 9;                              // each needs a search

struct FoundNoise {
  tune::NoiseScale noise;
  std::int64_t step = 0;  // last step with a noise scale; 0: none
};

struct Noise {
  tune::NoiseScale scale;
  std::string origin;
};

FoundNoise noise_in(const fs::path& run) {
  FoundNoise found;
  (void)report::read_records(run / "metrics.jsonl", [&](const ordered_json& line, const std::string& event) {
    if (event != "step") return;
    const auto scale = line.find("noise_scale"), error = line.find("noise_scale_error");
    if (scale == line.end() || error == line.end() || !scale->is_number() || !error->is_number()) return;
    found.noise.samples = std::max(0.0, scale->get<double>());
    found.noise.error = std::max(0.0, error->get<double>());
    found.step = line.value("step", std::int64_t{0});
  });
  return found;
}

void check_same_training(const config::Config& config, const fs::path& run) {
  const config::Config theirs = config::load(run / "config.toml");
  for (const config::Key& key : config::schema()) {
    const bool counts = key.name.starts_with("model.") || key.name.starts_with("data.") ||
                        key.name == "train.label_smoothing" || key.name == "pipeline.batch_norm";
    if (!counts || key.has(config::kHow)) continue;
    const std::string now = config::to_text(key.field.get(config)), then = config::to_text(key.field.get(theirs));
    if (now == then) continue;
    throw ConfigError("--noise-from ", run.string(), ": that run has ", key.name, " = ", then,
                      ", but this configuration has ", now,
                      ", so the noise scales differ; name a run with the same model and data");
  }
}

Noise noise_of_run(const config::Config& config, const fs::path& run) {
  if (!fs::exists(run / "metrics.jsonl") || !fs::exists(run / "config.toml")) {
    throw ConfigError(concat("--noise-from ", run.string(),
                             " is not a run directory: it must contain metrics.jsonl and config.toml"));
  }
  check_same_training(config, run);
  const FoundNoise found = noise_in(run);
  if (found.step == 0) {
    throw ConfigError(concat("--noise-from ", run.string(),
                             ": that run has no noise scale; train with train.noise_scale_every_steps until its "
                             "records have one (at least 20 estimates)"));
  }
  return {found.noise, concat("The noise scale is the mean over the last 1,000 steps (or all, if fewer) of ",
                              run.string(), " up to step ", found.step, ".")};
}

// The beginning of the training with its own rate and a warm-up, so that the weights stay finite.
config::Config noise_run(const config::Config& config, int steps) {
  config::Config run = short_run(config, {.warm_up = 0, .steps = steps});
  run.train.noise_scale_every_steps = 1;
  run.train.reproducible = "off";  // it keeps no gradients of replicas
  run.train.lr = config.train.lr;
  run.train.warmup_steps = steps / 4;
  run.model.weights = config.model.weights;
  const bool has_replicas = run.replicas.local > 1;
  const bool has_chunks = run.pipeline.chunks.value_or(1) > 1 || run.train.micro_batch > 0;
  if (!has_replicas && !has_chunks) run.pipeline.chunks = 2;
  return run;
}

Noise measure_noise(const config::Config& config, double step_s, double limit_s) {
  if (config.train.global_batch < 2)
    throw ConfigError("train.global_batch = 1 has no smaller batch to compare with; name a run with --noise-from");
  const int steps = static_cast<int>(std::clamp(limit_s / 2 / step_s, 1.0 * kLeastNoiseSteps, 1.0 * kMostNoiseSteps));
  log_info("training for ", steps, " steps to measure the gradient noise scale");
  const storage::ScratchFolder scratch("sluice-noise");
  const fs::path run = scratch.path() / "run";
  const ChildEnd end = train_in_child(noise_run(config, steps), run, limit_s);
  if (end.timed_out) {
    throw ConfigError("measuring the noise scale took longer than ", human_duration(limit_s),
                      "; raise --budget, or name a run with --noise-from");
  }
  if (end.exit_code != 0)
    throw Error(static_cast<ExitCode>(end.exit_code), concat("measuring the noise scale failed: ", end.last_words));
  const FoundNoise found = noise_in(run);
  if (found.step < steps) {
    throw ConfigError(steps,
                      " steps are too few to separate the mean gradient from its noise; train with "
                      "train.noise_scale_every_steps and name that run with --noise-from");
  }
  return {found.noise, concat("The noise scale was measured in the first ", steps, " steps of training from ",
                              config.model.weights.empty() ? "fresh weights" : "the weights of model.weights",
                              ": it usually grows later. For a better estimate, train with "
                              "train.noise_scale_every_steps and name that run with --noise-from.")};
}

bool is_adaptive(const std::string& optimizer) {
  constexpr std::array<std::string_view, 4> kinds{"rmsprop", "adam", "adamw", "lamb"};
  return std::ranges::find(kinds, optimizer) != kinds.end();
}

tune::RateRule rule_of(const config::Config& config, const BatchTuneOptions& options) {
  if (!options.rate_rule.empty()) return tune::rate_rule_of(options.rate_rule);
  return is_adaptive(config.train.optimizer) ? tune::RateRule::kAdamScale : tune::RateRule::kAdaScale;
}

std::string length_of_run(const config::Config& config, const tune::BatchProposal& proposal) {
  if (config.train.steps == 0)
    return "train.epochs stays the same: the same samples make another number of updates, and settings in steps "
           "(train.warmup_steps, train.lr_decay_steps, ...) take effect at other samples.";
  return concat("train.steps stays ", config.train.steps, ": with the proposed batch these are ",
                config.train.steps * proposal.best.batch, " samples instead of ",
                config.train.steps * proposal.present.batch, "; adapt it and the other settings in steps.");
}

void add_assumptions(BatchTuning& tuning, const config::Config& config, const BatchTuneOptions& options) {
  std::vector<std::string>& sentences = tuning.sentences;
  sentences = tuning.proposal.sentences;
  sentences.push_back(tuning.noise_origin);
  sentences.emplace_back("Step times are predictions from the profile for the best plan of each batch.");
  std::vector<std::string> words;
  for (const BatchPlan& plan : tuning.plans)
    if (plan.is_extrapolated) words.push_back(std::to_string(plan.best.plan.global_batch));
  if (!words.empty()) {
    sentences.push_back(
        concat("The times of ", join(words, ", "),
               " are extrapolated linearly, because their micro-batches are larger than the measured ones."));
  }
  if (options.rate_rule.empty()) {
    sentences.push_back(concat("The rule for the rate was chosen by train.optimizer = \"", config.train.optimizer,
                               "\"; choose another with --rate-rule."));
  }
  sentences.emplace_back("The rule assumes that the present learning rate is good for the present batch.");
  if (config.train.lr_min > 0) sentences.emplace_back("train.lr_min does not change.");
  if (!tuning.changes()) return;
  sentences.push_back(length_of_run(config, tuning.proposal));
  if (tuning.proposal.best.goodput < kClearGain * tuning.proposal.present.goodput)
    sentences.emplace_back("The gain is smaller than the error of predictions: the present batch may be as good.");
}

}  // namespace

std::vector<std::int64_t> batches_to_try(const config::Config& config, const BatchTuneOptions& options) {
  const std::int64_t present = config.train.global_batch;
  const std::int64_t multiple = std::gcd(present, std::int64_t{8});
  const std::int64_t least = options.least > 0 ? options.least : std::max(present / 4, multiple);
  std::int64_t most = options.most > 0 ? options.most : 4 * present;
  if (options.samples > 0 && options.most > options.samples)
    throw ConfigError("--batches: the training set has ", counted(options.samples, "sample"), ", so a batch of ",
                      options.most, " is impossible; choose a smaller one");
  if (options.samples > 0) most = std::min(most, std::max(options.samples, least));
  std::vector<std::int64_t> batches =
      tune::batches_in({.least = least, .most = most, .multiple = multiple, .count = kMostBatches});
  batches.push_back(present);
  std::ranges::sort(batches);
  const auto repeated = std::ranges::unique(batches);
  batches.erase(repeated.begin(), repeated.end());
  return batches;
}

BatchTuning tune_batch(const config::Config& config, const BatchTuneOptions& options, const BatchSearch& search) {
  const std::vector<std::int64_t> batches = batches_to_try(config, options);
  BatchTuning tuning;
  std::map<std::int64_t, BatchPlan> plans;
  for (const std::int64_t batch : batches) {
    if (auto plan = search.best_plan(batch)) plans.emplace(batch, std::move(*plan));
  }
  const auto seconds = [&](std::int64_t batch) {
    const auto plan = plans.find(batch);
    return plan == plans.end() ? std::numeric_limits<double>::infinity() : plan->second.best.step.seconds;
  };
  const double present_s = seconds(config.train.global_batch);
  if (std::isinf(present_s))
    throw ConfigError("no plan runs with the present train.global_batch = ", config.train.global_batch,
                      "; remove --allow-batch-change to see why");
  Noise noise = options.noise_from.empty() ? measure_noise(config, present_s, search.limit_s())
                                           : noise_of_run(config, options.noise_from);
  tuning.noise = noise.scale;
  tuning.noise_origin = std::move(noise.origin);
  tuning.proposal = tune::propose_batch({.step_seconds = seconds,
                                         .noise = tuning.noise,
                                         .batch = config.train.global_batch,
                                         .rate = config.train.lr,
                                         .batches = batches,
                                         .rule = rule_of(config, options)});
  for (const tune::BatchChoice& choice : tuning.proposal.choices) tuning.plans.push_back(plans.at(choice.batch));
  add_assumptions(tuning, config, options);
  return tuning;
}

config::Config with_batch(config::Config config, const BatchTuning& tuning) {
  if (!tuning.changes()) return config;
  config.train.global_batch = tuning.proposal.best.batch;
  config.train.lr = tuning.proposal.best.rate;
  return config;
}

}  // namespace sluice::train
