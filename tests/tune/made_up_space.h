// made_up_space: spaces of plans as the tests of the search make them up, and all their plans, tried one by one.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/memory_model.h"
#include "tune/plan_search.h"

namespace sluice::tune::test {

inline std::vector<LayerCost> made_up_layers(RngStream& rng, int layers, bool slow_down) {
  std::vector<LayerCost> costs;
  const auto bytes = [&](std::uint64_t most) { return AffineBytes{rng.below(most), 1 + rng.below(most)}; };
  for (int i = 0; i < layers; ++i) {
    const double scale = rng.below(4) == 0 ? 3 : 1;
    costs.push_back({.forward = {.a_s = rng.uniform(), .b_s = scale * rng.uniform()},
                     .input_gradient = {.a_s = rng.uniform(), .b_s = scale * rng.uniform()},
                     .weight_gradient = {.a_s = rng.uniform(), .b_s = scale * rng.uniform()},
                     .first_forward_s = rng.below(3) == 0 ? rng.uniform() : 0,
                     .first_backward_s = rng.below(3) == 0 ? rng.uniform() : 0,
                     .slowdown = slow_down ? 1 + rng.uniform() : 1,
                     .input_bytes = i == 0 ? 4 : costs.back().output_bytes,
                     .output_bytes = 1 + rng.below(10),
                     .saved_bytes = bytes(50),
                     .saves_input = rng.below(2) == 0,
                     .saves_output = rng.below(2) == 0,
                     .stash_bytes = bytes(20),
                     .working = {bytes(60), bytes(30), bytes(30), bytes(20), bytes(40), bytes(40)},
                     .transformed_bytes = rng.below(20),
                     .parameter_bytes = 1 + rng.below(100),
                     .gradient_bytes = rng.below(4) == 0 ? 0 : rng.below(100),
                     .optimizer_bytes = rng.below(40)});
    if (rng.below(2) == 0) costs.back().backward = {.a_s = rng.uniform(), .b_s = 2 * scale * rng.uniform()};
  }
  costs.back().loss_bytes = bytes(30);
  costs.back().loss_working = bytes(60);
  return costs;
}

inline StepOverheads made_up_overheads(RngStream& rng, bool slow_down) {
  StepOverheads overheads;
  if (rng.below(2) == 0) {
    overheads.borders.assign(1, {.latency_s = 0.3 * rng.uniform()});
    if (rng.below(2) == 0) overheads.borders.front().bytes_per_s = 5 + 50 * rng.uniform();
  }
  if (rng.below(2) == 0) {
    overheads.all_reduce = LinkCost{.latency_s = 0.2 * rng.uniform(), .bytes_per_s = 5 + 100 * rng.uniform()};
    overheads.bucket_bytes = static_cast<double>(rng.below(3) * 60);
  }
  if (rng.below(2) == 0) overheads.update = AffineCost{.a_s = 0.1 * rng.uniform(), .b_s = 0.02 * rng.uniform()};
  if (slow_down) overheads.contenders = 4;
  if (rng.below(3) == 0) overheads.runnable = 1 + rng.uniform(0, 3);
  return overheads;
}

// Costs that depend on the plan as measured ones do: more slots at once are slower.
inline std::function<SlotCosts(const Plan&)> costs_by_slots(std::vector<LayerCost> layers, StepOverheads overheads) {
  return [layers = std::move(layers), overheads = std::move(overheads)](const Plan& uncut) {
    SlotCosts costs{layers, overheads};
    const double slower = 1 + 0.1 * (uncut.devices() * uncut.replicas - 1);
    for (LayerCost& layer : costs.layers) layer.forward.b_s *= slower, layer.input_gradient.b_s *= slower;
    costs.overheads.replicas_on_machine = uncut.replicas;
    costs.overheads.updaters = uncut.replicas;
    if (!overheads.borders.empty()) costs.overheads.borders.assign(uncut.stages(), overheads.borders.front());
    if (uncut.replicas == 1) costs.overheads.all_reduce.reset();
    return costs;
  };
}

// Up to four devices, ten layers, sixteen micro-batches.
inline SearchSpace made_up_space(RngStream& rng) {
  const bool slow_down = rng.below(3) == 0;
  const int layers = 3 + static_cast<int>(rng.below(8));
  SearchSpace space;
  const auto some_of = [&](const auto& all, std::size_t most) {
    auto some = all;
    shuffle(some, rng);
    some.resize(1 + rng.below(most));
    return some;
  };
  space.costs_of = costs_by_slots(made_up_layers(rng, layers, slow_down), made_up_overheads(rng, slow_down));
  space.most_slots = 2 + static_cast<int>(rng.below(7));
  space.processes = 1 + static_cast<int>(rng.below(2));
  space.devices = some_of(std::vector{1, 2, 3, 4}, 3);
  space.replicas = some_of(std::vector{1, 2, 3}, 2);
  space.chunks = some_of(std::vector{1, 2, 3, 4, 6, 8, 16}, 3);
  space.batches = some_of(std::vector<std::int64_t>{12, 24, 32, 48, 64}, 2);
  space.schedules = some_of(std::vector<ScheduleChoice>{{"gpipe", 1, ""},
                                                        {"1f1b", 1, ""},
                                                        {"eager-1f1b", 1, ""},
                                                        {"zb-h1", 1, ""},
                                                        {"zb-v", 2, ""},
                                                        {"dualpipe-v", 2, ""},
                                                        {"interleaved", 2, ""},
                                                        {"looped-bfs", 2, ""}},
                            3);
  space.frozen_layers = rng.below(4) == 0 ? 1 : 0;
  space.shares_memory = rng.below(2) == 0;
  space.least_micro_batch = static_cast<std::int64_t>(rng.below(4));
  space.needs_equal_micro_batches = rng.below(3) == 0;
  return space;
}

// A plan that was tried, and whether it has room.
struct Tried {
  Plan plan;
  double samples_per_s = 0;
};

// Every plan of a space that has room: no bound, no order, no shortcut but that of recomputation, and unless
// `in_all_orders`, that on one device alone several stages are one.
class EveryPlan {
 public:
  explicit EveryPlan(const SearchSpace& space, bool in_all_orders = false)
      : space_(space), in_all_orders_(in_all_orders) {
    for (const ScheduleChoice& schedule : space.schedules)
      for (const int devices : space.devices)
        for (const int replicas : space.replicas)
          for (const int chunks : space.chunks)
            for (const std::int64_t batch : space.batches)
              for (const Recompute rule : space.recompute) try_family(schedule, devices, replicas, chunks, batch, rule);
  }

  // [family]: of its best plan, descending; schedules that are the same order are one family.
  [[nodiscard]] std::vector<double> best_rates() const {
    std::vector<double> rates;
    for (const auto& [family, tried] : best_) rates.push_back(tried.samples_per_s);
    std::ranges::sort(rates, std::greater{});
    return rates;
  }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  void try_family(const ScheduleChoice& schedule, int devices, int replicas, int chunks, std::int64_t batch,
                  Recompute rule) {
    Plan plan{.replicas = replicas,
              .chunks = chunks,
              .global_batch = batch,
              .schedule = schedule.name,
              .virtual_stages = schedule.virtual_stages,
              .frozen_layers = space_.frozen_layers};
    plan.partition.layers_per_stage.assign(devices * schedule.virtual_stages, 1);
    if (devices * replicas > space_.most_slots || (!in_all_orders_ && is_1f1b_alone(plan))) return;
    costs_ = space_.costs_of(plan);
    const int layers = static_cast<int>(costs_.layers.size()) - plan.frozen_layers;
    const std::int64_t all = std::int64_t{replicas} * space_.processes * chunks;
    const bool is_even = batch % all == 0 || !space_.needs_equal_micro_batches;
    if (plan.stages() > layers || batch / all < std::max<std::int64_t>(1, space_.least_micro_batch) || !is_even) return;
    try {
      schedule_ = pipeline::make_train_schedule(plan, chunks);
    } catch (const ConfigError&) {
      return;
    }
    plan.partition.layers_per_stage.clear();
    try_cuts(plan, layers, plan_stages(devices, schedule), rule);
  }

  static int plan_stages(int devices, const ScheduleChoice& schedule) { return devices * schedule.virtual_stages; }

  void try_cuts(Plan& plan, int layers, int stages, Recompute rule) {
    auto& counts = plan.partition.layers_per_stage;
    if (stages == 0) {
      if (layers == 0 && (!space_.partition || *space_.partition == plan.partition)) try_choices(plan, rule);
      return;
    }
    for (int count = 1; count <= layers - (stages - 1); ++count) {
      counts.push_back(count);
      try_cuts(plan, layers - count, stages - 1, rule);
      counts.pop_back();
    }
  }

  void try_choices(Plan& plan, Recompute rule) {
    const auto stages = static_cast<unsigned>(plan.stages());
    const unsigned every = (1U << stages) - 1;
    std::vector<unsigned> choices{rule == Recompute::kLayer ? every : 0U};
    if (rule == Recompute::kOpen && space_.memory_limit > 0)
      for (unsigned choice = 1; choice <= every; ++choice) choices.push_back(choice);
    std::vector<unsigned> fitting;
    for (const unsigned choice : choices) {
      plan.recompute.clear();
      for (unsigned s = 0; s < stages; ++s) plan.recompute.push_back(((choice >> s) & 1U) != 0);
      if (has_room(plan)) fitting.push_back(choice);
    }
    for (const unsigned choice : fitting) {
      const auto could_do_with = [&](unsigned fewer) { return fewer != choice && (fewer & choice) == fewer; };
      if (std::ranges::any_of(fitting, could_do_with)) continue;
      for (unsigned s = 0; s < stages; ++s) plan.recompute[s] = ((choice >> s) & 1U) != 0;
      try_plan(plan);
    }
  }

  [[nodiscard]] bool has_room(const Plan& plan) const {
    if (space_.memory_limit == 0) return true;
    const MemoryModel model{costs_.layers, space_.shares_memory, space_.processes};
    return estimate_bytes(model, plan).value() <= space_.memory_limit;
  }

  void try_plan(const Plan& plan) {
    ++count_;
    const double samples = static_cast<double>(plan.global_batch) / (plan.replicas * space_.processes);
    const double frozen = frozen_seconds(plan, costs_.layers, samples / plan.chunks, costs_.overheads);
    StepCosts costs = step_costs(std::span(costs_.layers).subspan(plan.frozen_layers), plan.partition, plan.recompute,
                                 samples / plan.chunks, costs_.overheads);
    costs.frozen_s = frozen;
    const double rate = static_cast<double>(plan.global_batch) / predict_step(schedule_, costs).seconds;
    std::string order;
    for (const auto& actions : schedule_.devices)
      for (const auto& action : actions) order += pipeline::to_text(action) + " ";
    Tried& best = best_[{order, plan.devices(), plan.replicas, plan.chunks, plan.global_batch}];
    if (rate > best.samples_per_s) best = {plan, rate};
  }

  [[nodiscard]] bool is_1f1b_alone(const Plan& plan) const {
    const auto is_1f1b = [](const ScheduleChoice& choice) { return choice.name == "1f1b"; };
    const bool is_alone = plan.devices() == 1 && plan.replicas * space_.processes == 1;
    const bool is_looped = plan.schedule == "interleaved" || plan.schedule == "looped-bfs";
    const bool may_recompute = std::ranges::find(space_.recompute, Recompute::kOpen) != space_.recompute.end();
    return is_alone && is_looped && !may_recompute && std::ranges::any_of(space_.schedules, is_1f1b);
  }

  const SearchSpace& space_;
  bool in_all_orders_;
  SlotCosts costs_;
  pipeline::Schedule schedule_;
  std::map<std::tuple<std::string, int, int, int, std::int64_t>, Tried> best_;
  std::size_t count_ = 0;
};

}  // namespace sluice::tune::test
