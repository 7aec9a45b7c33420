#include "train/tuning.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "device/device.h"
#include "models/model.h"
#include "nn/layer.h"
#include "pipeline/schedule/generators.h"
#include "storage/files.h"
#include "train/child.h"
#include "train/model_options.h"
#include "train/plan_settings.h"
#include "train/scratch_folder.h"
#include "train/setup.h"
#include "train/what_if.h"
#include "tune/memory_model.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using profiler::LayerProfile;

constexpr int kMostPlaces = 8;                 // of CPU devices, which share the cores
constexpr std::int64_t kLeastNormalised = 16;  // samples of a micro-batch that batch-norm normalises
constexpr double kSearchShare = 0.2;           // of the budget
constexpr double kLeastRun_s = 5;              // to begin another run for

bool on_cpu(const config::Config& config) {
  const config::DeviceList& list = config.device.list;
  if (list.names.empty()) return list.choice == "cpu" || (list.choice == "auto" && device::cuda_device_count() == 0);
  return list.names.front().starts_with("cpu");
}

// How many devices plans may use.
int count_places(const config::Config& config) {
  const auto named = static_cast<int>(config.device.list.names.size());
  if (named > 0) return named;
  const int configured = config.pipeline.stages * config.replicas.local;
  if (!on_cpu(config)) return std::max(configured, device::cuda_device_count());
  const int cores = device::available_cores() / std::max(1, config.device.threads);
  return std::max(configured, std::min(cores, kMostPlaces));
}

std::vector<int> up_to(int most) {
  std::vector<int> numbers;
  for (int i = 1; i <= most; ++i) numbers.push_back(i);
  return numbers;
}

// 1, 2, 3, 4, 6, 8, 12, 16, ...: a power of two, and half as much again.
std::vector<int> chunk_numbers(std::int64_t most) {
  constexpr std::int64_t kMost = 64;
  std::set<int> numbers;
  for (std::int64_t n = 1; n <= std::min(most, kMost); n *= 2) {
    numbers.insert(static_cast<int>(n));
    if (n + n / 2 <= std::min(most, kMost)) numbers.insert(static_cast<int>(n + n / 2));
  }
  return {numbers.begin(), numbers.end()};
}

bool normalises_micro_batches(const config::Config& config, const profiler::Fingerprint& print) {
  if (config.pipeline.batch_norm != "micro") return false;
  const models::Model model = models::make_without_values(models::ModelOptions(print.model));
  return std::ranges::any_of(model.layers, [](const auto& layer) { return !layer->batch_norms().empty(); });
}

// The profiles by their threads a device, most first.
class Profiles {
 public:
  explicit Profiles(std::vector<LayerProfile> all) : all_(std::move(all)) {
    std::ranges::sort(all_, std::greater{}, [](const LayerProfile& one) { return one.fingerprint.threads_per_device; });
  }

  [[nodiscard]] const LayerProfile& any() const { return all_.front(); }
  // For so many devices that work at once: with the most threads that the cores are enough for.
  [[nodiscard]] const LayerProfile& of_places(int places) const {
    for (const LayerProfile& one : all_)
      if (one.fingerprint.threads_per_device * places <= one.fingerprint.cores) return one;
    return all_.back();
  }
  [[nodiscard]] int threads_of(int places) const { return of_places(places).fingerprint.threads_per_device; }
  [[nodiscard]] int fewest_threads() const { return all_.back().fingerprint.threads_per_device; }

 private:
  std::vector<LayerProfile> all_;
};

// One for each number of threads that devices of a plan can have.
std::vector<int> places_to_profile(const config::Config& config, int places) {
  if (!on_cpu(config) || config.device.threads > 0) return {places};
  std::set<int> threads;
  std::vector<int> chosen;
  for (int used = places; used >= 1; --used)
    if (threads.insert(std::max(1, device::available_cores() / used)).second) chosen.push_back(used);
  return chosen;
}

// Its stages are as many as there are places, so that links and what devices take from each other are measured.
config::Config to_profile(config::Config config, int places) {
  config.pipeline.stages = places;
  config.pipeline.virtual_stages.reset();
  config.pipeline.partition.reset();
  config.pipeline.schedule = "1f1b";
  config.pipeline.chunks = std::min<int>(4, static_cast<int>(config.train.global_batch));
  config.pipeline.recompute = {};
  config.train.micro_batch = 0;
  config.replicas.local = 1;
  config.profile.steps = 3;
  return short_run(std::move(config), {});
}

LayerProfile profile_in_child(const config::Config& config, const fs::path& folder, int places, double limit_s) {
  const fs::path file = folder / concat("profile-", places, ".toml"),
                 out = folder / concat("profile-", places, ".json");
  storage::write_text_atomically(file, config::to_toml(to_profile(config, places)));
  log_info(concat("measuring the layers for plans of up to ", counted(places, "device")));
  const ChildEnd end = run_child({"--quiet", "profile", file.string(), "--out", out.string()}, limit_s);
  if (end.timed_out)
    throw ConfigError(concat("measuring the layers took longer than ", human_duration(limit_s), "; raise --budget"));
  if (end.exit_code != 0)
    throw Error(static_cast<ExitCode>(end.exit_code), concat("measuring the layers failed: ", end.last_words));
  return profiler::read_profile(out);
}

Profiles profiles_for(const config::Config& config, const TuneOptions& options, int places) {
  std::vector<LayerProfile> all;
  for (const fs::path& file : options.profiles) {
    LayerProfile profile = profiler::read_profile(file);
    config::Config fitting = config;  // whatever the devices of the configured plan
    fitting.device.threads = std::max(1, profile.fingerprint.threads_per_device);
    all.push_back(fitted_profile(fitting, std::move(profile), file.string()));
  }
  if (!all.empty()) return Profiles(std::move(all));
  const ScratchFolder scratch("sluice-profiles");
  const fs::path folder = options.keep_profiles.empty() ? scratch.path() : options.keep_profiles;
  fs::create_directories(folder);
  for (const int used : places_to_profile(config, places))
    all.push_back(profile_in_child(config, folder, used, options.budget_s));
  return Profiles(std::move(all));
}

// As many as the profiles say something of: where devices share the cores, of more of them each has fewer threads.
int places_of(const config::Config& config, const Profiles& profiles, int places) {
  if (!on_cpu(config) || config.device.threads > 0) return places;
  const int cores = profiles.any().fingerprint.cores, threads = profiles.fewest_threads();
  int most = places;
  while (most > 1 && std::max(1, cores / most) < threads) --most;
  if (most < places)
    log_warning(concat("no profile is of fewer than ", counted(threads, "thread"), " a device: plans of more than ",
                       counted(most, "device"), " are left out; leave --profile out to have them measured"));
  return most;
}

// One that was edited, or is of another version, may have other layers.
void check_layers(const LayerProfile& profile) {
  const models::Model model = models::make_without_values(models::ModelOptions(profile.fingerprint.model));
  if (model.layers.size() != profile.layers.size())
    throw ConfigError(concat("the profile has ", counted(std::ssize(profile.layers), "layer"), ", but ",
                             profile.fingerprint.model.name, " has ", model.layers.size(),
                             "; measure again with `sluice profile`"));
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
  // A list of stages holds for one plan alone.
  const bool has_one_plan = config.freeze.policy == "none" && config.pipeline.changes.empty();
  if (!has_one_plan) return {tune::Recompute::kNone, tune::Recompute::kLayer};
  return {tune::Recompute::kNone, tune::Recompute::kLayer, tune::Recompute::kOpen};
}

tune::SearchSpace space_of(const config::Config& config, const TuneOptions& options, const Profiles& profiles,
                           int places) {
  const bool has_one_batch_norm = normalises_micro_batches(config, profiles.any().fingerprint);
  const std::int64_t batch = config::step_batch(config);
  const std::int64_t present = batch / config.replicas.local / configured_chunks(config, /*processes=*/1, batch);
  tune::SearchSpace space{
      .costs_of =
          [&config, &profiles, batch](Plan plan) {
            plan.global_batch = batch;
            const LayerProfile& profile = profiles.of_places(plan.devices() * plan.replicas);
            return tune::PlaceCosts{profile.costs_at(tune::largest_micro_batch(plan)),
                                    overheads_by_profile(config, profile, plan, /*processes=*/1)};
          },
      .most_places = places,
      .devices = keeps(options, "pipeline.stages") ? std::vector{config.pipeline.stages} : up_to(places),
      .replicas = keeps(options, "replicas.local") ? std::vector{config.replicas.local} : up_to(places),
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

// The commonest reason may be one of plans that nobody wants.
std::string why_no_plan(const std::vector<tune::Refusal>& refusals) {
  if (refusals.empty()) return "no plan runs: there is none to choose from";
  std::vector<std::string> reasons;
  for (const tune::Refusal& refusal : refusals) reasons.push_back(concat(refusal.why, " (", refusal.count, ")"));
  return concat("no plan runs: ", join(reasons, ", "));
}

std::vector<tune::PlanRun> runs_of(const std::vector<VerifiedPlan>& verified) {
  std::vector<tune::PlanRun> runs;
  for (const VerifiedPlan& one : verified)
    runs.push_back({one.predicted, one.ran(), one.measured.step_s, one.measured.error});
  return runs;
}

// One after the other, as long as the budget is enough.
std::vector<VerifiedPlan> verify(const config::Config& config, const tune::SearchResult& search,
                                 const Profiles& profiles, const TuneOptions& options, Nanoseconds begin) {
  std::vector<VerifiedPlan> verified;
  while (std::ssize(verified) < options.verify) {
    const tune::Candidate* const candidate = tune::next_to_run(search.best, runs_of(verified));
    if (candidate == nullptr) break;
    const double left = options.budget_s - to_s(now_ns() - begin);
    if (left < kLeastRun_s) {
      log_warning(concat("the budget of ", human_duration(options.budget_s), " is over after ",
                         counted(std::ssize(verified), "plan"), "; raise --budget to run more of them"));
      break;
    }
    log_info(concat("running plan ", verified.size() + 1, " of ",
                    std::min<std::size_t>(options.verify, search.best.size()), ": predicted ",
                    fixed(candidate->step.seconds * 1e3, 1), " ms a step"));
    const int threads = on_cpu(config) ? profiles.threads_of(candidate->plan.devices() * candidate->plan.replicas) : 0;
    const MeasuredSteps measured = measure_steps(with_plan(config, candidate->plan, threads), {.limit_s = left});
    if (!measured.failure.empty()) log_warning(concat("the plan does not run: ", measured.failure));
    verified.push_back({*candidate, measured});
  }
  return verified;
}

tune::Candidate choose(const tune::SearchResult& search, const std::vector<VerifiedPlan>& verified) {
  if (verified.empty()) return search.best.front();
  const std::vector<tune::PlanRun> runs = runs_of(verified);
  if (const tune::PlanRun* best = tune::simplest_of_fastest(runs)) return best->candidate;
  throw ConfigError(
      concat("none of the ", verified.size(), " best plans runs; the last one: ", verified.back().measured.failure));
}

void check_can_tune(const config::Config& config, const TuneOptions& options) {
  if (config.replicas.sync == "ps")
    throw ConfigError(
        "replicas.sync = \"ps\" has workers of its own pace, which tune does not plan; use \"allreduce\"");
  if (!config.pipeline.order.empty())
    throw ConfigError("pipeline.order is one fixed plan, of which nothing is left to tune; leave it out");
  if (!config.pipeline.recompute.stages.empty())
    throw ConfigError(
        R"(pipeline.recompute is a list for the stages of one plan, and tune looks for another; write "auto", )"
        R"("none" or "layer")");
  const config::DeviceList& list = config.device.list;
  const std::vector<std::string> devices = list.names.empty() ? std::vector{list.choice} : list.names;
  (void)device::choose_devices(devices, static_cast<int>(devices.size()));  // they are there
  for (const std::string& key : options.keep) {
    if (std::ranges::find(tuned_keys(), key) == tuned_keys().end())
      throw ConfigError(concat("--keep ", key, " is no key that tune changes; they are ", join(tuned_keys(), ", ")));
  }
}

// Whose profiles serve all batches.
config::Config with_largest_batch(config::Config config, const TuneOptions& options) {
  if (options.batch.is_allowed) config.train.global_batch = batches_to_try(config, options.batch).back();
  return config;
}

// All of its searches together have as much time as the one that follows. Requires: the references outlive it.
BatchSearch batch_search(const config::Config& config, const TuneOptions& options, const Profiles& profiles,
                         int places) {
  const double batches = static_cast<double>(batches_to_try(config, options.batch).size());
  const auto best_plan =
      [&, places, seconds = kSearchShare * options.budget_s / batches](std::int64_t batch) -> std::optional<BatchPlan> {
    config::Config other = config;
    other.train.global_batch = batch;
    const tune::SearchResult found = tune::search_plans(space_of(other, options, profiles, places),
                                                        {.seconds = seconds, .clock = [] { return to_s(now_ns()); }});
    if (found.best.empty()) return std::nullopt;
    const Plan& plan = found.best.front().plan;
    const auto& times = profiles.of_places(plan.devices() * plan.replicas).layers.front().times;
    const std::int64_t measured =
        times.empty() ? 0 : std::ranges::max(times, {}, &profiler::LayerTimes::samples).samples;
    return BatchPlan{found.best.front(), tune::largest_micro_batch(plan) > measured};
  };
  return {.best_plan = best_plan, .limit_s = options.budget_s / 2};
}

// Of the slowest stage of a plan, as one line.
AffineCost slowest_stage(const std::vector<LayerCost>& layers, const Plan& plan, double micro_batch) {
  const auto at = [&](double samples) {
    return std::ranges::max(tune::stage_times(layers, samples, plan.partition, plan.recompute));
  };
  const double whole = at(micro_batch), half = at(micro_batch / 2);
  const double slope = std::max(0.0, (whole - half) / (micro_batch / 2));
  return {.a_s = std::max(0.0, whole - slope * micro_batch), .b_s = slope};
}

}  // namespace

const std::vector<std::string>& tuned_keys() {
  static const std::vector<std::string> keys{"pipeline.stages",   "replicas.local",     "pipeline.chunks",
                                             "pipeline.schedule", "pipeline.partition", "pipeline.recompute"};
  return keys;
}

config::Config with_plan(config::Config config, const Plan& plan, int threads) {
  config.pipeline.stages = plan.devices();
  config.pipeline.virtual_stages = plan.virtual_stages;
  config.pipeline.chunks = plan.chunks;
  config.pipeline.schedule = plan.schedule;
  config.pipeline.partition = plan.partition.layers_per_stage;
  config.pipeline.recompute = recompute_choice(plan);
  config.replicas.local = plan.replicas;
  config.train.micro_batch = 0;
  if (threads > 0) config.device.threads = threads;
  return config;
}

TuneResult tune_plan(const config::Config& configured, TuneOptions options) {
  check_can_tune(configured, options);
  if (options.batch.is_allowed) options.batch.samples = make_setup(configured).train_set->size();
  const Nanoseconds begin = now_ns();
  TuneResult result{.places = count_places(configured)};
  const Profiles profiles = profiles_for(with_largest_batch(configured, options), options, result.places);
  result.places = places_of(configured, profiles, result.places);
  check_layers(profiles.any());
  config::Config config = configured;
  if (options.batch.is_allowed) {
    result.batch = tune_batch(configured, options.batch, batch_search(configured, options, profiles, result.places));
    config = with_batch(configured, *result.batch);
  }
  log_info(concat("searching for the best plan on ", counted(result.places, "device")));
  result.search =
      tune::search_plans(space_of(config, options, profiles, result.places),
                         {.seconds = kSearchShare * options.budget_s, .clock = [] { return to_s(now_ns()); }});
  if (result.search.best.empty()) throw ConfigError(why_no_plan(result.search.refusals));
  result.verified = verify(config, result.search, profiles, options, begin);
  result.refit = tune::refit_of(runs_of(result.verified));
  result.chosen = choose(result.search, result.verified);
  const Plan& plan = result.chosen.plan;
  const int places = plan.devices() * plan.replicas;
  if (on_cpu(config)) result.threads = profiles.threads_of(places);
  if (plan.devices() > 1) {
    const double samples = static_cast<double>(plan.global_batch) / plan.replicas;
    const auto line = slowest_stage(profiles.of_places(places).costs(), plan, samples / plan.chunks);
    result.first_guess = tune::first_guess_chunks(plan.devices(), samples, line);
  }
  result.tuned = with_plan(config, plan, on_cpu(config) ? result.threads : 0);
  if (keeps(options, "pipeline.recompute")) result.tuned.pipeline.recompute = config.pipeline.recompute;
  config::validate(result.tuned);
  result.seconds = to_s(now_ns() - begin);
  return result;
}

}  // namespace sluice::train
