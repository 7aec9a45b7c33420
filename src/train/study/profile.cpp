#include "train/study/profile.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/clock.h"
#include "core/concat.h"
#include "core/log.h"
#include "device/memory.h"
#include "engine/same_state.h"
#include "measure/cost_cache.h"
#include "measure/measure_links.h"
#include "measure/measure_operators.h"
#include "pipeline/schedule/plan_schedule.h"
#include "report/run_totals.h"
#include "report/time_table.h"
#include "storage/files.h"
#include "train/plan/choose_chunks.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/plan/plan_changes.h"
#include "train/plan/profile_overheads.h"
#include "train/plan/run_facts.h"
#include "train/plan/step_predictor.h"
#include "train/plan/trial_steps.h"
#include "train/plan/what_if.h"
#include "train/setup/run_state.h"
#include "train/setup/same_start.h"
#include "train/study/measure_alone.h"
#include "train/study/profile_sums.h"
#include "tune/memory_model.h"
#include "tune/partition.h"
#include "tune/predict.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using profiler::LayerProfile;

struct ProfiledSteps {
  int warm_up = 3;
  std::int64_t timed = 0;
  bool with_memory = true;  // one more step that counts memory
};

// Rank 0's message to the other processes, which lack its measurements and may have another [profile].
struct ProfileStartMessage {
  Plan plan;
  ProfiledSteps steps;
  std::string trace = {};       // rank 0's file; may be empty
  StepRange torch_traced = {};  // steps for LibTorch's profiler, in rank 0's folder
  std::string torch_folder = {};

  [[nodiscard]] std::string to_text() const {
    return nlohmann::json{{"state", RunState{.plan = plan}.to_json()},
                          {"warm_up", steps.warm_up},
                          {"timed", steps.timed},
                          {"with_memory", steps.with_memory},
                          {"trace", trace},
                          {"torch_traced", torch_traced.to_json()},
                          {"torch_folder", torch_folder}}
        .dump();
  }
  [[nodiscard]] static ProfileStartMessage from_text(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    return {RunState::from_json(json.at("state"), "rank 0's start message").plan,
            {json.at("warm_up"), json.at("timed"), json.at("with_memory")},
            json.at("trace"),
            StepRange::from_json(json.at("torch_traced")),
            json.at("torch_folder")};
  }
};

void check_writable(const config::Config& config, const ProfileOptions& options) {
  storage::check_output("--out", options.out, {options.config_file, config.pipeline.order});
  const storage::AtomicFile probe(options.out);
  if (options.trace.empty()) return;
  storage::check_output("--trace", options.trace, {options.config_file, config.pipeline.order});
  if (fs::weakly_canonical(fs::absolute(options.trace)) == fs::weakly_canonical(fs::absolute(options.out)))
    throw ConfigError("--trace ", options.trace.string(), " is the file of --out; give it another name");
  const storage::AtomicFile probe_of_trace(options.trace);
}

double samples_of_replica(const Setup& setup) {
  return static_cast<double>(setup.global_batch) / static_cast<double>(count_replicas(setup));
}

std::int64_t micro_batch_of(const Setup& setup, const Plan& plan) {
  return std::max<std::int64_t>(static_cast<std::int64_t>(samples_of_replica(setup) / plan.chunks), 1);
}

struct MeasuredMemory {
  std::vector<profiler::StageMemory> stages;
  std::vector<profiler::DeviceMemory> devices;
};

// Runs one more step. Returns its peak memory beside the predicted one if this process counts, as rank 0 does; else
// nothing. costs: of the layers, for the prediction.
MeasuredMemory measure_memory(const Setup& setup, engine::Engine& engine, bool counts,
                              const std::vector<LayerCost>& costs) {
  const engine::Composition& composition = engine.composition();
  const Plan& plan = composition.plan;
  std::vector<pipeline::LiveBytes*> counted;
  for (int s = 0; counts && s < plan.stages(); ++s)
    counted.push_back(&composition.executor->stage(ReplicaId{0}, StageId{s}).count_live_bytes());
  for (const device::Device device : setup.devices) device::reset_peak_memory(device);
  (void)run_trial_steps(setup, engine, /*warm_up=*/0, /*steps=*/1);
  if (!counts) return {};
  MeasuredMemory memory;
  const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
  const std::vector<int>& owners = composition.executor->owners();
  const auto samples = static_cast<std::uint64_t>(std::ceil(samples_of_replica(setup) / plan.chunks));
  const auto live = tune::live_peaks(costs, schedule, plan.partition, plan.recompute, samples);
  for (int s = 0; s < plan.stages(); ++s)
    memory.stages.push_back({s, device::to_string(setup.devices[owners[s]]), counted[s]->peak(), live[s]});
  const auto peaks = tune::estimate_slot_bytes({costs, shares_memory(setup), setup.process.processes}, plan);
  std::map<device::Device, std::uint64_t> predicted;  // a device may have several slots
  for (std::size_t slot = 0; peaks && slot < setup.devices.size(); ++slot)
    predicted[setup.devices[slot]] += peaks->at(slot);
  for (const auto& [device, bytes] : predicted) {
    if (const auto peak = device::peak_bytes(device))
      memory.devices.push_back({device::to_string(device), *peak, bytes});
  }
  return memory;
}

std::optional<profiler::OperatorProfile> operators_of(const Setup& setup) {
  const measure::Workload workload = workload_of(setup);
  if (workload.device.kind != device::DeviceKind::kCpu) {
    log_warning("--layers: operators can be measured on CPU devices only, but the layers run on ",
                device::to_string(workload.device));
    return std::nullopt;
  }
  log_info("measuring the layers' operators and the machine's peak rates");
  return measure::measure_operators(workload, micro_batch_size(setup));
}

measure::ReplicaGroup replica_group(const Setup& setup, comm::Processes* processes) {
  measure::ReplicaGroup group{.processes = processes,
                              .collectives = collectives_of(setup.config),
                              .dtype = setup.model.dtype,
                              .cpu_threads = setup.cpu_threads};
  for (int replica = 0; replica < setup.config.replicas.local; ++replica)
    group.devices.push_back(setup.devices[replica * setup.config.pipeline.stages]);
  return group;
}

// With one replica, measures the sums of 2, 4, ... and all CPU devices, which other plans may use.
std::vector<profiler::AllReduceLink> all_reduces_of(const Setup& setup, comm::Processes* processes,
                                                    std::uint64_t bucket) {
  measure::ReplicaGroup group = replica_group(setup, processes);
  std::vector<std::size_t> replicas{group.devices.size()};
  const bool is_one = processes == nullptr && group.devices.size() == 1;
  if (is_one && shares_memory(setup)) {
    replicas.clear();
    for (std::size_t count = 2; count < setup.devices.size(); count *= 2) replicas.push_back(count);
    replicas.push_back(setup.devices.size());
    group.devices = setup.devices;
  }
  std::vector<profiler::AllReduceLink> links;
  for (const std::size_t count : replicas) {
    measure::ReplicaGroup some = group;
    some.devices.resize(count);
    if (const auto link = measure::measure_all_reduce(some, bucket)) links.push_back(*link);
  }
  return links;
}

TraceOptions trace_of(const Setup& setup, const ProfileStartMessage& message) {
  const StepRange timed{message.steps.warm_up + 1, message.steps.warm_up + message.steps.timed};
  return {.steps = message.trace.empty() ? StepRange{} : timed,
          .part = part_of_process(setup),
          .file = [&setup, file = fs::path(message.trace)](int rank) {
            return trace_file_beside(file, rank, setup.process.processes);
          }};
}

// LibTorch's profiler slows steps down, so it gets further, untimed steps.
void trace_with_torch(Peers& peers, const Setup& setup, engine::Engine& engine, const ProfileStartMessage& message) {
  if (message.torch_traced.is_empty()) return;
  TorchSteps torch(setup, peers.others(), engine, message.torch_traced, message.torch_folder);
  const auto [first, last] = message.torch_traced;
  (void)run_trial_steps(setup, engine, /*warm_up=*/static_cast<int>(first - 1), /*steps=*/last - first + 1,
                        /*trace=*/nullptr, &torch);
  if (peers.keeps_records()) torch.report(nullptr);
}

// As many as configured, or as time allows, by the measured costs. Allows for a busy machine.
ProfiledSteps steps_to_run(const Setup& setup, const LayerProfile& profile, const Plan& plan,
                           const tune::Deadline& end) {
  constexpr double kBusy = 3;
  ProfiledSteps steps{.timed = setup.config.profile.steps};
  if (!end.is_limited()) return steps;
  const double step_s = kBusy * predict_by_profile(setup.config, profile, plan, setup.process.processes, {}).seconds;
  const auto seconds = [&] {
    return step_s * static_cast<double>(steps.warm_up + steps.timed + (steps.with_memory ? 1 : 0));
  };
  if (seconds() > end.left()) steps.with_memory = false;
  if (seconds() > end.left()) steps.warm_up = 1;
  while (steps.timed > 0 && seconds() > end.left()) --steps.timed;
  if (steps.timed == 0) log_info("running no training steps: --budget is used up");
  return steps;
}

std::vector<TrialStep> run_steps(Peers& peers, const Setup& setup, engine::Engine& engine,
                                 const ProfileStartMessage& message) {
  const ProfiledSteps& steps = message.steps;
  if (steps.timed == 0) return {};
  if (peers.keeps_records()) log_info("running ", steps.warm_up, " + ", steps.timed, " training steps");
  StepTrace trace(setup, peers.others(), trace_of(setup, message));
  std::vector<TrialStep> trial;
  run_traced(peers, trace,
             [&] { trial = whole_steps(run_trial_steps(setup, engine, steps.warm_up, steps.timed, &trace)); });
  return trial;
}

struct ComposedRun {
  Plan plan;                     // with the decided number of chunks
  std::vector<TrialStep> trial;  // may be empty
  report::RunFacts facts;
  MeasuredMemory memory;
  std::vector<profiler::AllReduceLink> all_reduces;
};

ComposedRun run_composed(Peers& peers, const Setup& setup, const ProfileStartMessage& message, LayerProfile profile) {
  engine::Engine engine(message.plan, engine_options(setup, peers.processes()));
  engine::Composition& composition = engine.composition();
  ComposedRun measured;
  peers.together([&] {
    if (!peers.is_alone()) engine::hand_out_state(composition);
    if (chunks_are_open(setup.config)) decide_chunks(setup, engine, {});
    measured.plan = composition.plan;
    measured.trial = run_steps(peers, setup, engine, message);
    trace_with_torch(peers, setup, engine, message);
    profile.micro_batch = micro_batch_of(setup, composition.plan);
    if (message.steps.with_memory)
      measured.memory = measure_memory(setup, engine, peers.keeps_records(), profile.costs());
    const std::uint64_t bucket = largest_bucket(composition.gradient_bytes(), setup.config.replicas.bucket_mb);
    if (setup.config.replicas.sync != "none") measured.all_reduces = all_reduces_of(setup, peers.processes(), bucket);
    if (peers.keeps_records()) measured.facts = facts_of(setup, composition);
  });
  return measured;
}

LayerProfile with_measured(LayerProfile profile, const Setup& setup, const ComposedRun& measured) {
  profile.micro_batch = micro_batch_of(setup, measured.plan);
  profile.stage_memory = measured.memory.stages;
  profile.device_memory = measured.memory.devices;
  profile.all_reduces = measured.all_reduces;
  if (!measured.trial.empty()) profile.step = summary_of(measured.trial);
  return profile;
}

// Predicts the profile's measured step, and calibrates the time that layers, links, sums and update leave unexplained.
LayerProfile with_prediction(LayerProfile profile, const Setup& setup, const Plan& plan) {
  const auto predict = [&] {
    return tune::predict_step(plan, profile.costs(), samples_of_replica(setup), step_overheads(setup, profile));
  };
  profiler::StepSummary& step = *profile.step;
  const tune::StepPrediction predicted = predict();
  const auto devices = static_cast<double>(predicted.devices.size());
  for (const tune::DevicePrediction& device : predicted.devices) step.predicted_compute_s += device.compute / devices;
  // In the measured steps, the loader's threads ran beside the devices.
  if (const auto loading = loading_of(setup.config, profile, plan, setup.process.processes))
    step.predicted_compute_s += tune::load_times(*loading, predicted.seconds).slows;
  // If devices outnumber the cores and wait, they overlap less than predicted, but layers get no faster.
  if (cpu_slots(setup.devices) > step_overheads(setup, profile).runnable)
    step.predicted_compute_s = std::min(step.predicted_compute_s, step.compute_s);
  step.predicted_s = predicted.seconds;
  step.predicted_allreduce_s = predicted.all_reduce;
  step.predicted_update_s = predicted.update;
  step.other_s = std::max(0.0, step.median_without_load_s - predict().seconds);  // with computing as measured
  return profile;
}

// Adds the table of the steps, and advice that is predicted from the layer and link costs.
void describe_steps(const Setup& setup, const ComposedRun& measured, ProfileOutcome& outcome) {
  report::RunFacts facts = measured.facts;
  report::RunTotals totals;
  for (const TrialStep& step : measured.trial) totals.add_step(step.stats, step.breakdown, std::nullopt, facts);
  if (totals.slots.empty()) return;
  outcome.step_table = report::time_table(report::mean_times(totals.slots), {}, totals.steps, facts.processes);
  facts.costs = advice_costs(setup, outcome.profile, facts.plan);
  outcome.advice = tune::advise(report::advice_input(totals, facts));
}

ProfileStartMessage start_message(const Setup& setup, const LayerProfile& profile, const ProfileOptions& options,
                                  const tune::Deadline& end) {
  const Plan plan = plan_by_costs(setup, profile.costs(), profile.stage_links);
  return {plan, steps_to_run(setup, profile, plan, end), options.trace.string(), torch_steps(setup, {}, /*first=*/1),
          fs::absolute(options.out).parent_path().string()};
}

ProfileOutcome lead(Peers& peers, const Setup& setup, const ProfileOptions& options) {
  const auto clock = [] { return to_s(now_ns()); };
  const tune::Deadline end =
      options.budget_s > 0 ? tune::Deadline(clock, clock() + options.budget_s) : tune::Deadline();
  const auto write = [&](const ProfileOutcome& outcome) {
    storage::write_text_atomically(options.out, concat(outcome.to_json().dump(2), "\n"));
  };
  ProfileOutcome outcome{.profile = measure_alone(setup, options.launch.version, end, [&](const LayerProfile& so_far) {
                           if (end.is_limited()) write({.profile = so_far});
                         })};
  if (options.with_operators) outcome.operators = operators_of(setup);
  const ProfileStartMessage message = start_message(setup, outcome.profile, options, end);
  if (!peers.is_alone()) (void)comm::broadcast_text(peers.communicator(), message.to_text(), /*root=*/0);
  if (end.is_limited()) write(outcome);
  const ComposedRun measured = run_composed(peers, setup, message, outcome.profile);
  outcome.profile = with_measured(std::move(outcome.profile), setup, measured);
  if (outcome.profile.step) outcome.profile = with_prediction(std::move(outcome.profile), setup, measured.plan);
  describe_steps(setup, measured, outcome);
  write(outcome);
  log_info("profile written to ", options.out.string());
  if (const std::string why = outcome.profile.disturbance(); !why.empty()) {
    log_warning("the machine was busy during the measurement: ", why, "; predictions from ", options.out.string(),
                " may be far off; measure again on a quiet machine");
  }
  measure::keep_profile(setup.config.pipeline.cost_cache, workload_of(setup), outcome.profile);
  return outcome;
}

void follow(Peers& peers, const Setup& setup, const ProfileOptions& options) {
  const auto message = ProfileStartMessage::from_text(comm::broadcast_text(peers.communicator(), {}, /*root=*/0));
  warn_of_own_trace(setup, !options.trace.empty(), !message.trace.empty());
  (void)run_composed(peers, setup, message, {});
}

}  // namespace

nlohmann::ordered_json ProfileOutcome::to_json() const {
  auto json = nlohmann::ordered_json::parse(profiler::to_json_text(profile));
  if (operators) json["operators"] = profiler::to_json(*operators);
  return json;
}

std::optional<ProfileOutcome> run_profile(const config::Config& config, const ProfileOptions& options) {
  log_how_started(options.launch.world);
  check_trace_file(options.trace);
  check_trace(!options.trace.empty(), config);
  Setup setup;
  Peers peers(options.launch, config, [&](bool rank_0) {
    if (rank_0) check_writable(config, options);
    setup = make_setup(config, process_rank(options.launch.world));
  });
  if (peers.is_guest())
    throw ConfigError("a run goes on at this meeting point; choose another one (MASTER_PORT, --init) to profile");
  std::optional<ProfileOutcome> outcome;
  peers.run([&] {
    settle_together(peers, setup);
    if (peers.keeps_records()) {
      log_changes_left_out(config);
      outcome = lead(peers, setup, options);
    } else {
      follow(peers, setup, options);
    }
    return nlohmann::ordered_json();
  });
  return outcome;
}

}  // namespace sluice::train
