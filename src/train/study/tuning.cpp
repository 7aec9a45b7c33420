#include "train/study/tuning.h"

#include <algorithm>
#include <set>

#include "config/schema.h"
#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/process_age.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "device/device.h"
#include "models/model.h"
#include "pipeline/schedule/generators.h"
#include "train/plan/what_if.h"
#include "train/setup/model_options.h"
#include "train/setup/setup.h"
#include "train/study/tune_profiles.h"
#include "tune/budget.h"
#include "tune/choose_run.h"
#include "tune/memory_model.h"

namespace sluice::train {
namespace {

using profiler::LayerProfile;

constexpr int kMostSlots = 8;                  // of CPU devices, which share the cores
constexpr std::int64_t kLeastNormalised = 16;  // minimum micro-batch for batch-norm, in samples

int count_slots(const config::Config& config) {
  const auto named = static_cast<int>(config.device.list.names.size());
  if (named > 0) return named;
  const int configured = config.pipeline.stages * config.replicas.local;
  if (!on_cpu(config)) return std::max(configured, device::cuda_device_count());
  const int cores = device::available_cores() / std::max(1, config.device.threads);
  return std::max(configured, std::min(cores, kMostSlots));
}

std::vector<int> up_to(int most) {
  std::vector<int> numbers;
  for (int i = 1; i <= most; ++i) numbers.push_back(i);
  return numbers;
}

// 1, 2, 3, 4, 6, 8, 12, 16, ...: powers of two and 1.5 times them.
std::vector<int> chunk_numbers(std::int64_t most) {
  constexpr std::int64_t kMost = 64;
  std::set<int> numbers;
  for (std::int64_t n = 1; n <= std::min(most, kMost); n *= 2) {
    numbers.insert(static_cast<int>(n));
    if (n + n / 2 <= std::min(most, kMost)) numbers.insert(static_cast<int>(n + n / 2));
  }
  return {numbers.begin(), numbers.end()};
}

bool normalises_micro_batches(const config::Config& config, const LayerProfile& profile) {
  return config.pipeline.batch_norm == "micro" && models::has_batch_norms(measured_model(config, profile));
}

// Limited by the profiles: with more devices that share the cores, each would have fewer threads than any profile.
int slots_of(const config::Config& config, const Profiles& profiles, int slots) {
  if (!on_cpu(config) || config.device.threads > 0) return slots;
  const int cores = profiles.any().fingerprint.cores, threads = profiles.fewest_threads();
  int most = slots;
  while (most > 1 && std::max(1, cores / most) < threads) --most;
  if (most < slots)
    log_warning("no profile has fewer than ", counted(threads, "thread"), " a device: plans for more than ",
                counted(most, "device"), " are left out; remove --profile to measure them");
  return most;
}

bool keeps(const TuneOptions& options, const char* key) {
  return std::ranges::find(options.keep, key) != options.keep.end();
}

std::vector<tune::ScheduleChoice> schedules_for(const config::Config& config, const TuneOptions& options) {
  if (keeps(options, "pipeline.schedule")) return {{config.pipeline.schedule, virtual_stages(config)}};
  std::vector<tune::ScheduleChoice> all;
  for (const std::string& name : pipeline::schedule_names())
    all.push_back({name, pipeline::default_virtual_stages(name)});
  return all;
}

std::vector<tune::Recompute> recompute_rules(const config::Config& config, const TuneOptions& options) {
  const config::RecomputeChoice& recompute = config.pipeline.recompute;
  if (!recompute.is_open()) return {recompute.all == "layer" ? tune::Recompute::kLayer : tune::Recompute::kNone};
  if (keeps(options, "pipeline.recompute")) return {tune::Recompute::kOpen};
  // A list of stages holds for one plan only.
  if (config.freeze.policy != "none") return {tune::Recompute::kNone, tune::Recompute::kLayer};
  return {tune::Recompute::kNone, tune::Recompute::kLayer, tune::Recompute::kOpen};
}

tune::SearchSpace space_of(const config::Config& config, const TuneOptions& options, const Profiles& profiles,
                           int slots) {
  const bool has_one_batch_norm = normalises_micro_batches(config, profiles.any());
  const std::int64_t batch = config::step_batch(config);
  const std::int64_t present = batch / config.replicas.local / configured_chunks(config, /*processes=*/1, batch);
  tune::SearchSpace space{
      .costs_of =
          [&config, &profiles, batch](Plan plan) {
            plan.global_batch = batch;
            const LayerProfile& profile = profiles.of_slots(plan.devices() * plan.replicas);
            return tune::SlotCosts{profile.costs_at(tune::largest_micro_batch(plan)),
                                   overheads_by_profile(config, profile, plan, /*processes=*/1)};
          },
      .most_slots = slots,
      .devices = keeps(options, "pipeline.stages") ? std::vector{config.pipeline.stages} : up_to(slots),
      .replicas = keeps(options, "replicas.local") ? std::vector{config.replicas.local} : up_to(slots),
      .chunks =
          keeps(options, "pipeline.chunks") ? std::vector{configured_chunks(config, 1, batch)} : chunk_numbers(batch),
      .batches = {batch},
      .schedules = schedules_for(config, options),
      .memory_limit = static_cast<std::uint64_t>(config.device.memory_limit.bytes) / 10 * 9,
      .shares_memory = on_cpu(config)};
  space.recompute = recompute_rules(config, options);
  if (keeps(options, "pipeline.partition") && config.pipeline.partition)
    space.partition = Partition{*config.pipeline.partition};
  if (has_one_batch_norm) space.least_micro_batch = std::min(kLeastNormalised, std::max<std::int64_t>(present, 1));
  return space;
}

// Names memory as the only reason if it is one: with more memory, those plans would run.
[[noreturn]] void throw_no_plan(const std::vector<tune::Refusal>& refusals, const tune::SearchSpace& space) {
  std::vector<std::string> of_memory, others;
  for (const tune::Refusal& refusal : refusals)
    (refusal.is_of_memory ? of_memory : others).push_back(concat(refusal.why, " (", refusal.count, ")"));
  if (!of_memory.empty())
    throw OutOfMemoryError("no plan fits in ", human_bytes(space.memory_limit), ", which is 90 % of ",
                           "device.memory_limit (--memory): ", join(of_memory, ", "),
                           "; use more memory, a smaller train.global_batch, or more devices");
  throw ConfigError("no plan runs: ", others.empty() ? "there are no candidates" : join(others, ", "));
}

tune::SearchResult find_plans(tune::SearchSpace space, const tune::Budget& budget) {
  constexpr double kPlainShare = 0.1;  // of the time
  const auto clock = [] { return to_s(now_ns()); };
  const double seconds = budget.left();
  tune::SearchResult found = tune::search_plans(space, {.seconds = (1 - kPlainShare) * seconds, .clock = clock});
  std::erase_if(space.schedules, [](const tune::ScheduleChoice& choice) {
    return choice.virtual_stages > 1 || (choice.name != "gpipe" && choice.name != "1f1b");
  });
  if (found.best.empty() || space.schedules.empty()) return found;
  const tune::SearchResult plain = tune::search_plans(space, {.seconds = kPlainShare * seconds, .clock = clock});
  tune::add_simplest(found.best, plain.best);
  return found;
}

// The plans that ran, and the configured one if its batch is unchanged.
std::vector<tune::PlanRun> runs_of(const PlanRuns& verified, const ConfiguredPlan& configured, std::int64_t batch) {
  std::vector<tune::PlanRun> runs;
  for (const VerifiedPlan& one : verified.done()) runs.push_back(one.as_run());
  const bool has_same_batch = configured.predicted && configured.predicted->plan.global_batch == batch;
  const auto is_configured = [&](const VerifiedPlan& one) {
    return is_same_plan(one.predicted.plan, configured.predicted->plan);
  };
  if (has_same_batch && configured.measured && std::ranges::none_of(verified.done(), is_configured))
    runs.push_back(VerifiedPlan{*configured.predicted, *configured.measured}.as_run());
  return runs;
}

// True if no plan ran, although some might have.
bool is_unverified(const PlanRuns& verified) {
  return std::ranges::none_of(verified.done(), &VerifiedPlan::ran) &&
         (verified.done().empty() || !verified.left_out().empty());
}

const tune::Candidate& best_by_prediction(const std::vector<tune::Candidate>& best,
                                          const std::vector<VerifiedPlan>& failed) {
  for (const tune::Candidate& candidate : best) {
    const auto is_this = [&](const VerifiedPlan& one) { return one.predicted.plan == candidate.plan; };
    if (std::ranges::none_of(failed, is_this)) return candidate;
  }
  return best.front();
}

tune::Candidate choose(const std::vector<tune::Candidate>& best, const PlanRuns& verified,
                       const std::vector<tune::PlanRun>& runs) {
  if (is_unverified(verified)) return best_by_prediction(best, verified.done());
  if (const tune::PlanRun* fastest = tune::simplest_of_fastest(runs)) return fastest->candidate;
  const MeasuredSteps& last = verified.done().back().measured;
  throw Error(last.exit_code,
              concat("none of the ", verified.done().size(), " best plans runs; the last one failed: ", last.failure));
}

std::optional<Speedup> speedup_of(const tune::Candidate& chosen, const std::vector<tune::PlanRun>& runs,
                                  const ConfiguredPlan& configured, const tune::Refit& refit) {
  if (!configured.predicted) return std::nullopt;
  const auto rate_ratio = [&](double chosen_s, double configured_s) {
    const auto batches =
        static_cast<double>(chosen.plan.global_batch) / static_cast<double>(configured.predicted->plan.global_batch);
    return batches * configured_s / chosen_s;
  };
  const auto is_chosen = [&](const tune::PlanRun& run) {
    return run.ran && is_same_plan(run.candidate.plan, chosen.plan);
  };
  if (const auto run = std::ranges::find_if(runs, is_chosen); run != runs.end() && configured.ran())
    return Speedup{rate_ratio(run->step_s, configured.measured->step_s), /*is_measured=*/true};
  return Speedup{rate_ratio(refit.seconds(chosen), refit.seconds(*configured.predicted)), /*is_measured=*/false};
}

void check_can_tune(const config::Config& config, const TuneOptions& options) {
  if (config.replicas.has_server()) throw ConfigError("tune cannot plan replicas.sync = \"ps\"; use \"allreduce\"");
  if (!config.pipeline.order.empty())
    throw ConfigError("pipeline.order is one fixed plan, so there is nothing to tune; remove it");
  if (!config.pipeline.changes.empty())
    throw ConfigError("pipeline.changes apply to the configured plan, but tune looks for another; remove them");
  if (!config.pipeline.recompute.stages.empty())
    throw ConfigError(R"(pipeline.recompute lists the stages of one plan, but tune looks for another; write "auto", )"
                      R"("none" or "layer")");
  const config::DeviceList& list = config.device.list;
  const std::vector<std::string> devices = list.names.empty() ? std::vector{list.choice} : list.names;
  (void)device::choose_devices(devices, static_cast<int>(devices.size()));  // throws if one is missing
  for (const std::string& key : options.keep) {
    if (std::ranges::find(tuned_keys(), key) == tuned_keys().end())
      throw ConfigError("--keep ", key, " is not a key that tune changes; these are ", join(tuned_keys(), ", "));
  }
}

config::Config with_largest_batch(config::Config config, const TuneOptions& options) {
  if (options.batch.is_allowed) config.train.global_batch = batches_to_try(config, options.batch).back();
  return config;
}

// Requires: the references outlive the result.
BatchSearch batch_search(const config::Config& config, const TuneOptions& options, const Profiles& profiles,
                         tune::Budget& budget, int slots) {
  const double batches = static_cast<double>(batches_to_try(config, options.batch).size());
  const auto best_plan = [&, slots, seconds = budget.left() / batches](std::int64_t batch) -> std::optional<BatchPlan> {
    config::Config other = config;
    other.train.global_batch = batch;
    const tune::SearchResult found = tune::search_plans(space_of(other, options, profiles, slots),
                                                        {.seconds = seconds, .clock = [] { return to_s(now_ns()); }});
    if (found.best.empty()) return std::nullopt;
    const Plan& plan = found.best.front().plan;
    const auto& times = profiles.of_slots(plan.devices() * plan.replicas).layers.front().times;
    const std::int64_t measured =
        times.empty() ? 0 : std::ranges::max(times, {}, &profiler::LayerTimes::samples).samples;
    return BatchPlan{found.best.front(), tune::largest_micro_batch(plan) > measured};
  };
  return {.best_plan = best_plan, .limit_s = [&budget] {
            budget.begin(tune::Budget::Part::kNoise);
            return budget.left();
          }};
}

void name_profiles(const TuneProfiles& found, int slots, TuneResult& result) {
  const LayerProfile& own = found.profiles.of_slots(slots);
  if (!found.files.empty()) {
    result.profile_file = found.files.at(own.fingerprint.threads_per_device);
    return;
  }
  result.measured_profiles.push_back(own);
  for (const LayerProfile& other : found.profiles.all())
    if (&other != &own) result.measured_profiles.push_back(other);
}

config::Config tuned_config(const config::Config& config, const TuneOptions& options, const Plan& plan, int threads) {
  config::Config tuned = with_plan(config, plan, threads);
  if (keeps(options, "pipeline.recompute")) tuned.pipeline.recompute = config.pipeline.recompute;
  if (keeps(options, "pipeline.chunks") && chunks_are_open(config)) tuned.pipeline.chunks.reset();
  if (keeps(options, "pipeline.partition")) tuned.pipeline.partition = config.pipeline.partition;
  config::validate(tuned);
  return tuned;
}

// Cost of a plan's slowest stage as a line over samples.
AffineCost slowest_stage(const std::vector<LayerCost>& layers, const Plan& plan, double micro_batch) {
  const auto at = [&](double samples) {
    return std::ranges::max(tune::stage_times(layers, samples, plan.partition, plan.recompute));
  };
  const double whole = at(micro_batch), half = at(micro_batch / 2);
  const double slope = std::max(0.0, (whole - half) / (micro_batch / 2));
  return {.a_s = std::max(0.0, whole - slope * micro_batch), .b_s = slope};
}

void describe_choice(const config::Config& config, const TuneOptions& options, const TuneProfiles& found,
                     TuneResult& result) {
  const Plan& plan = result.chosen.plan;
  const int slots = plan.devices() * plan.replicas;
  if (on_cpu(config)) result.threads = found.profiles.threads_of(slots);
  name_profiles(found, slots, result);
  if (plan.devices() > 1) {
    const double samples = static_cast<double>(plan.global_batch) / plan.replicas;
    const auto line = slowest_stage(found.profiles.of_slots(slots).costs(), plan, samples / plan.chunks);
    result.first_guess = tune::first_guess_chunks(plan.devices(), samples, line);
  }
  result.tuned = tuned_config(config, options, plan, on_cpu(config) ? result.threads : 0);
}

}  // namespace

const std::vector<std::string>& tuned_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> names;
    for (const config::Key& key : config::schema())
      if (key.has(config::kTuned)) names.emplace_back(key.name);
    return names;
  }();
  return keys;
}

TuneResult tune_plan(const config::Config& configured, TuneOptions options) {
  using Part = tune::Budget::Part;
  check_can_tune(configured, options);
  tune::Budget budget(
      options.budget_s, options.batch.is_allowed, [] { return to_s(now_ns()); }, process_age_s());
  log_info("of the budget of ", human_duration(options.budget_s), ": ", budget.describe());
  const bool is_given = !options.profiles.empty();
  const bool inspects_run = !is_given || options.verify > 0 || options.batch.is_allowed;
  const TunedRun run = inspects_run ? inspect_run(configured) : TunedRun{};
  options.batch.samples = run.samples;

  const config::Config largest = with_largest_batch(configured, options);
  const int all_slots = count_slots(configured);
  const TuneProfiles found =
      is_given ? read_profiles(largest, options.profiles) : measure_profiles(largest, run.layers, budget, all_slots);
  const Profiles& profiles = found.profiles;
  TuneResult result{.slots = slots_of(configured, profiles, all_slots)};

  config::Config config = configured;
  if (options.batch.is_allowed) {
    budget.begin(Part::kBatches);
    result.batch =
        tune_batch(configured, options.batch, batch_search(configured, options, profiles, budget, result.slots));
    config = with_batch(configured, *result.batch);
  }
  result.configured = predict_configured(configured, profiles);
  log_info("searching for the best plan on ", counted(result.slots, "device"));
  budget.begin(Part::kSearching);
  const tune::SearchSpace space = space_of(config, options, profiles, result.slots);
  result.search = find_plans(space, budget);
  const std::vector<tune::Candidate>& best = result.search.best;
  if (best.empty()) throw_no_plan(result.search.refusals, space);

  budget.begin(Part::kRunning);
  PlanRuns verified(config, profiles, budget);
  verified.run_best(best, options.verify);
  verified.run_configured(configured, result.configured);
  const std::vector<tune::PlanRun> runs = runs_of(verified, result.configured, best.front().plan.global_batch);
  result.refit = tune::refit_of(runs);
  result.chosen = choose(best, verified, runs);
  result.speedup = speedup_of(result.chosen, runs, result.configured, result.refit);
  result.verified = verified.done();
  result.left_out = verified.left_out();
  result.is_verified = !is_unverified(verified);
  describe_choice(config, options, found, result);
  result.budget_use = budget.describe_use();
  result.seconds = budget.used();
  return result;
}

}  // namespace sluice::train
