#include "train/plan/choose_chunks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/progress_line.h"
#include "core/text.h"
#include "engine/state.h"
#include "measure/cost_cache.h"
#include "pipeline/schedule/plan_schedule.h"
#include "train/plan/choose_plan.h"
#include "train/plan/memory_advice.h"
#include "train/plan/step_predictor.h"
#include "train/setup/step_batch.h"
#include "tune/memory_model.h"

namespace sluice::train {
namespace {

// No step can follow a failed one if other processes wait within it, or a thread has not returned from it.
bool ends_with_a_failure(const engine::Composition& composition) {
  return composition.processes() > 1 || composition.executor->has_abandoned_threads();
}

// Gives all processes the same mean, so that they decide alike.
std::vector<double> mean_over_processes(const engine::Composition& composition, const std::vector<double>& own) {
  const at::Tensor sum = at::tensor(own, at::kDouble);
  composition.sync->sum(sum);
  const at::Tensor mean = sum.div(composition.processes());
  return {mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + mean.numel()};
}

double time_step(const engine::Composition& composition, engine::TrainStep& step, const engine::StepBatch& batch,
                 int chunks) {
  const Nanoseconds begin = now_ns();
  step.compute_gradients(batch, 0, chunks, {.is_trial = true});
  return mean_over_processes(composition, {to_s(now_ns() - begin)}).front();
}

tune::MemoryModel kept_or_measured_model(const Setup& setup) {
  const auto kept = measure::find_costs(setup.config.pipeline.cost_cache, workload_of(setup), micro_batch_size(setup));
  if (!kept) return measure_memory_model(setup);
  return memory_model_of(kept->profile.costs(), setup);
}

// Estimates decide what fits, except on a GPU without a limit whose plan used no estimate.
bool memory_is_estimated(const Setup& setup, const tune::PlanRequest& request) {
  return request.memory_limit > 0 && (request.needs_costs() || setup.config.device.memory_limit.bytes > 0);
}

// Rank 0's number: another process may have another device.memory_limit.
int as_rank_0(const engine::Composition& composition, int number) {
  const at::Tensor shared = at::full({1}, number, at::kInt);
  composition.sync->take_rank_0s(shared);
  return shared.item<int>();
}

void agree(const engine::Composition& composition, std::vector<tune::ChunkCandidate>& candidates) {
  if (candidates.empty()) return;
  std::vector<double> numbers;
  for (const tune::ChunkCandidate& candidate : candidates) {
    numbers.push_back(candidate.fits ? 0 : 1);
    numbers.push_back(candidate.bytes);
  }
  numbers = mean_over_processes(composition, numbers);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].fits = numbers[2 * i] == 0;
    candidates[i].bytes = numbers[2 * i + 1];
  }
}

struct TrialNumbers {
  std::vector<tune::ChunkCandidate> all;
  int most = 1;
};

TrialNumbers numbers_to_try(const Setup& setup, const engine::Composition& composition, std::int64_t replica_samples) {
  const Plan& plan = composition.plan;
  const tune::PlanRequest request = plan_request(setup);
  // An open recomputation was chosen for the plan's number of chunks: with fewer, a stage might not fit.
  const int least =
      as_rank_0(composition, request.recompute_is_open() ? plan.chunks : pipeline::least_micro_batches(plan));
  const int of_use = std::max({least, plan.chunks, 4 * plan.devices()});
  const int most = static_cast<int>(std::clamp<std::int64_t>(replica_samples, least, of_use));
  // If any process has a limit, all compare what fits, each by its own limit (0: none).
  const bool is_estimated = memory_is_estimated(setup, request);
  const bool is_estimated_anywhere = mean_over_processes(composition, {is_estimated ? 1.0 : 0.0}).front() > 0;
  const tune::MemoryModel model = is_estimated ? kept_or_measured_model(setup) : tune::MemoryModel{};
  const std::uint64_t limit = is_estimated ? request.memory_limit : 0;
  TrialNumbers numbers{tune::estimate_chunks(model, plan, least, most, limit), most};
  if (!is_estimated_anywhere) return numbers;
  agree(composition, numbers.all);
  if (std::ranges::any_of(numbers.all, &tune::ChunkCandidate::fits)) return numbers;
  constexpr std::int64_t kMostChunks = 65'536;
  const int all = static_cast<int>(std::min(replica_samples, kMostChunks));
  auto more = tune::estimate_chunks(model, plan, 2 * numbers.all.back().chunks, all, limit);
  agree(composition, more);
  numbers.all.insert(numbers.all.end(), more.begin(), more.end());
  return numbers;
}

// Predicts only if all processes have a profile, and uses the mean, so that all decide alike. Trials neither load nor
// push. Costs of a single size do not show the fixed cost of a micro-batch.
void predict(const Setup& setup, const engine::Composition& composition,
             std::vector<tune::ChunkCandidate>& candidates) {
  const auto predictor = StepPredictor::known(setup);
  const bool is_known = predictor && predictor->is_by_profile() && !predictor->is_of_server();
  std::vector<double> seconds;
  for (const tune::ChunkCandidate& candidate : candidates) {
    Plan plan = composition.plan;
    plan.chunks = candidate.chunks;
    seconds.push_back(is_known ? predictor->seconds_without_loading(plan) : 0);
  }
  seconds.push_back(is_known ? 1 : 0);
  seconds = mean_over_processes(composition, seconds);
  if (seconds.back() < 1) return;
  for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].predicted_s = seconds[i];
}

std::string describe_untried(const TrialNumbers& numbers, const std::vector<tune::ChunkCandidate>& promising,
                             const tune::ChunkTrials& trials) {
  std::vector<int> too_large, slower;
  for (const tune::ChunkCandidate& candidate : numbers.all) {
    const bool is_promising =
        std::ranges::find(promising, candidate.chunks, &tune::ChunkCandidate::chunks) != promising.end();
    if (!is_promising && candidate.fits && candidate.chunks <= numbers.most) slower.push_back(candidate.chunks);
    if (!candidate.fits && candidate.chunks <= numbers.most && !trials.has_tried(candidate.chunks))
      too_large.push_back(candidate.chunks);
  }
  std::string text;
  const auto add = [&](const std::vector<int>& left_out, const std::string& why) {
    if (!left_out.empty()) text += concat("; ", tune::listed(left_out), left_out.size() == 1 ? " was" : " were", why);
  };
  add(trials.untried(), " not tried within pipeline.planning_budget_s");
  add(slower, " predicted to be slower");
  add(too_large, " left out: estimated not to fit the memory");
  return text;
}

// Runs the steps that `trials` asks for. If nothing fits, it throws the first failure: it was the most likely to fit.
void run_trials(const Setup& setup, engine::Engine& engine, const engine::StepBatch& batch, tune::ChunkTrials& trials) {
  const engine::Composition& composition = engine.composition();
  ProgressLine progress;
  std::optional<std::pair<Error, Plan>> failure;
  while (const std::optional<int> chunks = trials.next()) {
    const auto text = [&] {
      return concat("trying ", counted(*chunks, "chunk"), " a step; so far ", trials.timings());
    };
    if (setup.process.rank == 0) progress.show(text);
    Plan plan = composition.plan;
    plan.chunks = *chunks;
    try {
      trials.took(time_step(composition, engine.step(), batch, *chunks));
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::kOutOfMemory) throw;
      if (ends_with_a_failure(composition)) throw with_fitting_advice(error, setup, plan);
      log_debug(counted(*chunks, "chunk"), ": ", error.what());
      trials.did_not_fit();
      if (!failure) failure.emplace(error, plan);
    }
  }
  if (!trials.best()) throw with_fitting_advice(failure->first, setup, failure->second);
}

}  // namespace

ChunkChoice choose_chunks(const Setup& setup, engine::Engine& engine, const engine::StepBatch& batch) {
  engine::Composition& composition = engine.composition();
  const engine::BufferSnapshot buffers(composition);
  const TrialNumbers numbers = numbers_to_try(setup, composition, batch.global_samples / count_replicas(setup));
  constexpr std::size_t kVerified = 3;
  std::vector<tune::ChunkCandidate> candidates = tune::worth_trying(numbers.all, numbers.most);
  predict(setup, composition, candidates);
  candidates = tune::most_promising(std::move(candidates), kVerified);
  tune::ChunkTrials trials(candidates, composition.plan.chunks, chunks_budget(setup));
  run_trials(setup, engine, batch, trials);
  buffers.restore();
  composition.executor->recorder().clear();
  return {.chunks = trials.best().value(),
          .why = trials.timings(),
          .left_out = describe_untried(numbers, candidates, trials)};
}

void decide_chunks(const Setup& setup, engine::Engine& engine, data::Position start) {
  const auto log_on_rank_0 = [&](const std::string& what) {
    if (setup.process.rank == 0) log_info("pipeline.chunks = \"auto\"", what);
  };
  if (setup.config.train.deterministic) {
    log_on_rank_0(concat(" with train.deterministic: ", engine.plan().chunks, ", unmeasured"));
    return;
  }
  log_on_rank_0(concat(": timing steps without updates; time budget ", human_duration(chunks_budget(setup)),
                       " (two thirds of pipeline.planning_budget_s)"));
  const engine::StepBatch batch = [&] {
    data::LoaderOptions options = train_loader_options(setup, engine.plan());
    options.prefetch = 1;  // only one batch is needed
    return as_step_batch(*data::Loader(*setup.train_set, options, start).next(), *setup.task);
  }();
  const ChunkChoice choice = choose_chunks(setup, engine, batch);
  const bool was_compared = choice.why.find(',') != std::string::npos;
  const char* const untimed = chunks_budget(setup) > 0 ? ", the only number to try" : ", with no time to try others";
  log_on_rank_0(
      concat(": ", choice.chunks,
             choice.why.empty() ? untimed : concat(was_compared ? " is fastest (" : " is used (", choice.why, ")"),
             choice.left_out));
  Plan plan = engine.plan();
  plan.chunks = choice.chunks;
  engine.apply(plan);
}

}  // namespace sluice::train
