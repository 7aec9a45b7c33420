#include "engine/engine.h"

#include <exception>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "engine/divergence.h"
#include "pipeline/failure.h"
#include "pipeline/schedule/plan_schedule.h"
#include "storage/not_finite.h"

namespace sluice::engine {
namespace {

storage::TensorMap copies_of(storage::TensorMap tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
  return tensors;
}

std::exception_ptr failure_of(const std::function<void()>& action) {
  try {
    action();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Throws in every process alike. Any plan would reject such a state, the previous one too.
void require_finite(const State& state) {
  for (const storage::TensorMap* tensors : {&state.model, &state.optimizer}) {
    const std::string found = storage::describe_not_finite(*tensors);
    if (!found.empty())
      throw DivergedError(
          concat("before a change of plan: ", found, " since the update before; ", smaller_updates_advice()));
  }
}

[[noreturn]] void refuse(const std::exception_ptr& failure) {
  if (!failure) {
    throw PlanRefused(ExitCode::kPeer,
                      "another process cannot take the new plan on, so the one before stays; its own line says why");
  }
  const Error error = pipeline::describe_failure(failure, "the new plan cannot be taken on, the one before stays");
  throw PlanRefused(error.exit_code(), error.what());
}

}  // namespace

Engine::Engine(const Plan& plan, EngineOptions options) : options_(std::move(options)) {
  options_.compose.threads = std::make_shared<pipeline::DeviceThreads>();
  options_.compose.recorder = std::make_shared<Recorder>(options_.compose.record_spans);
  options_.compose.limits = std::make_shared<pipeline::PassLimits>(options_.compose.step_timeout);
  const DeviceChoice where = options_.devices_of(plan);
  connect(plan, options_on(where));
  compose_on(plan, where);
  if (options_.make_layers_without_values) options_.compose.make_layers = options_.make_layers_without_values;
}

void Engine::compose_on(const Plan& plan, const DeviceChoice& where) {
  options_.compose = options_on(where);
  composition_ = compose(plan, options_.compose);
  step_.emplace(composition_, options_.step);
}

std::exception_ptr Engine::recompose(const Plan& plan, const DeviceChoice& where, const State& state) {
  return failure_of([&] {
    step_.reset();
    composition_ = {};  // frees memory before the new composition allocates
    failpoint("plan-given-up");
    compose_on(plan, where);
    load(state, "the state of the plan before");
  });
}

State Engine::capture() const {
  return {.model = copies_of(model_tensors(composition_)),
          .optimizer = copies_of(optimizer_tensors(composition_)),
          .optimizer_steps = composition_.optimizers.front()->steps(),
          .updates = update_counts(composition_)};
}

storage::TensorMap Engine::model_between_steps() const {
  storage::TensorMap model = model_tensors(composition_);
  if (remembered_) remembered_->put_into(model);
  return model;
}

void Engine::load(const State& state, const std::string& source) {
  load_model(composition_, state.model, source);
  load_optimizer(composition_, state.optimizer, state.optimizer_steps, source, state.updates);
}

void Engine::check_feasible(const Plan& plan, const DeviceChoice& where) const {
  std::vector<nn::Layer*> layers;
  if (const auto prefixes = composition_.executor->prefixes(); !prefixes.empty()) {
    for (const auto& layer : prefixes.front()->layers()) layers.push_back(layer.get());
  }
  for (int s = 0; s < composition_.plan.stages(); ++s) {
    for (const auto& layer : composition_.executor->stage(ReplicaId{0}, StageId{s}).layers())
      layers.push_back(layer.get());
  }
  static_cast<void>(pipeline::make_train_schedule(plan, plan.chunks));
  check_fits(plan, options_on(where), layers, composition_.plan.frozen_layers);
}

ComposeOptions Engine::options_on(const DeviceChoice& where) const {
  ComposeOptions options = options_.compose;
  options.devices = where.devices;
  options.cpu_threads = where.cpu_threads;
  return options;
}

bool Engine::failed_somewhere(bool failed_here) const {
  if (!options_.compose.has_peers()) return failed_here;
  const at::Tensor failures = at::full({1}, failed_here ? 1 : 0, at::kInt);
  options_.compose.communicators->get(kSmallSums)->all_reduce(failures).wait();
  return failures.item<int>() > 0;
}

void Engine::apply(Plan plan) {  // a copy: `plan` may refer to composition_.plan
  Plan as_composed = plan;       // no composed object depends on these
  as_composed.chunks = composition_.plan.chunks;
  as_composed.shares = composition_.plan.shares;
  if (plan != composition_.plan && as_composed == composition_.plan) {
    if (const auto failure = failure_of([&] { (void)pipeline::make_train_schedule(plan, plan.chunks); }))
      refuse(failure);
    composition_.plan = std::move(plan);
    return;
  }
  const Plan old_plan = composition_.plan;
  const DeviceChoice old_where{options_.compose.devices, options_.compose.cpu_threads};
  DeviceChoice where;
  std::exception_ptr failure = failure_of([&] {  // each process has its own devices and limit
    where = options_.devices_of(plan);
    check_feasible(plan, where);
  });
  failpoint("plan-checked");
  if (failed_somewhere(failure != nullptr)) refuse(failure);
  failpoint("plan-agreed");
  try {
    connect(plan, options_on(where));  // connects now, so that no process waits for one that fails below
  } catch (const ConfigError&) {       // thrown in every process alike
    refuse(std::current_exception());
  }
  State state;
  failure = failure_of([&] { state = capture(); });
  if (failed_somewhere(failure != nullptr)) refuse(failure);
  require_finite(state);
  failpoint("plan-captured");
  failure = recompose(plan, where, state);
  failpoint("plan-composed");
  if (!failed_somewhere(failure != nullptr)) {
    failpoint("plan-taken");
    return composition_.follow_frozen();
  }
  connect(old_plan, options_on(old_where));
  if (const std::exception_ptr lost = recompose(old_plan, old_where, state)) {
    throw BugError("neither the new nor the previous plan can be set up: ",
                   pipeline::describe_failure(lost, "the plan before").what(), "; resume from the last checkpoint");
  }
  refuse(failure);
}

}  // namespace sluice::engine
