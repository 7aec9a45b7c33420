#include "tune/plan_families.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::tune {
namespace {

struct Reason {
  std::string group;
  std::string sentence;
};

template <typename Item>
std::vector<Item> in_order(std::vector<Item> items) {
  std::ranges::sort(items);
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

std::vector<ScheduleChoice> in_order(std::vector<ScheduleChoice> choices) {
  const auto names = pipeline::schedule_names();
  const auto key = [&](const ScheduleChoice& choice) {
    return std::tuple(std::ranges::find(names, choice.name) - names.begin(), choice.name, choice.virtual_stages,
                      choice.schedule_text);
  };
  std::ranges::sort(choices, {}, key);
  const auto repeats = [&](const auto& a, const auto& b) { return key(a) == key(b); };
  choices.erase(std::unique(choices.begin(), choices.end(), repeats), choices.end());
  return choices;
}

// Without a memory limit nothing is open. With one, kOpen includes kNone.
std::vector<Recompute> rules_in_order(const SearchSpace& space) {
  std::vector<Recompute> rules = space.recompute;
  if (space.memory_limit == 0) std::ranges::replace(rules, Recompute::kOpen, Recompute::kNone);
  if (std::ranges::find(rules, Recompute::kOpen) != rules.end()) std::erase(rules, Recompute::kNone);
  return in_order(std::move(rules));
}

bool defers_weights(const pipeline::Schedule& schedule) {
  const auto is_weight = [](const pipeline::Action& action) { return action.op == pipeline::Op::kWeightGradient; };
  return std::ranges::any_of(schedule.devices,
                             [&](const auto& actions) { return std::ranges::any_of(actions, is_weight); });
}

class Families {
 public:
  Families(const SearchSpace& space, Refusals& refusals)
      : space_(space),
        refusals_(refusals),
        replicas_(in_order(space.replicas)),
        batches_(in_order(space.batches)),
        schedules_(in_order(space.schedules)),
        rules_(rules_in_order(space)) {}

  std::vector<FamilyShape> take() && {
    for (const int devices : in_order(space_.devices)) {
      for (const int chunks : in_order(space_.chunks)) {
        made_.clear();
        for (const ScheduleChoice& choice : schedules_) add_schedule(devices, chunks, choice);
      }
    }
    return std::move(families_);
  }

 private:
  void add_schedule(int devices, int chunks, const ScheduleChoice& choice) {
    FamilyShape shape{.plan = {.partition = {},
                               .chunks = chunks,
                               .schedule = choice.schedule_text.empty() ? choice.name : Plan::kFromFile,
                               .schedule_text = choice.schedule_text,
                               .virtual_stages = choice.virtual_stages,
                               .frozen_layers = space_.frozen_layers}};
    shape.plan.partition.layers_per_stage.assign(std::max(1, devices * choice.virtual_stages), 1);
    std::optional<Reason> reason;
    for (const int replicas : replicas_) {
      shape.plan.replicas = replicas;
      shape.costs = nullptr;
      reason = why_no_slots(devices, replicas, choice.virtual_stages);
      if (!reason) shape.costs = costs_of(shape.plan);
      if (!reason) reason = why_no_cut(shape);
      if (!reason && !shape.schedule) reason = make_schedule(shape);
      if (!reason) reason = why_one_stage(shape);
      for (const std::int64_t batch : batches_) {
        shape.plan.global_batch = batch;
        const std::optional<Reason> of_batch = reason ? reason : why_no_batch(shape.plan);
        for (const Recompute rule : rules_) {
          shape.recompute = rule;
          if (!of_batch) {
            families_.push_back(shape);
          } else {
            Plan without_cut = shape.plan;
            without_cut.partition = {};
            refusals_.add(of_batch->group, without_cut, of_batch->sentence);
          }
        }
      }
    }
  }

  [[nodiscard]] std::optional<Reason> why_no_slots(int devices, int replicas, int virtual_stages) const {
    if (devices < 1 || replicas < 1 || virtual_stages < 1)
      return Reason{"none", "a plan needs at least one replica of one device with one stage"};
    if (std::int64_t{devices} * replicas <= space_.most_slots) return std::nullopt;
    return Reason{"slots", concat(counted(replicas, "replica"), " of ", counted(devices, "device"), " need ",
                                  std::int64_t{devices} * replicas, " slots, but there are ", space_.most_slots)};
  }

  // On a single device all orders of the same actions take the same time: there is nothing to overlap. 1F1B with one
  // stage needs least memory, but with several stages only some may recompute.
  [[nodiscard]] std::optional<Reason> why_one_stage(const FamilyShape& shape) const {
    const Plan& plan = shape.plan;
    const auto is_1f1b = [](const ScheduleChoice& choice) {
      return choice.name == "1f1b" && choice.virtual_stages == 1 && choice.schedule_text.empty();
    };
    const bool is_alone = plan.devices() == 1 && plan.replicas * space_.processes == 1;
    const bool may_recompute = std::ranges::find(rules_, Recompute::kOpen) != rules_.end();
    if (!is_alone || plan.stages() == 1 || may_recompute || space_.partition ||
        std::ranges::none_of(schedules_, is_1f1b) || defers_weights(*shape.schedule))
      return std::nullopt;
    return Reason{"alone", concat("on one device alone the ", plan.stages(), " stages of schedule ", plan.schedule,
                                  " do what 1f1b does with one")};
  }

  [[nodiscard]] std::optional<Reason> why_no_cut(const FamilyShape& shape) const {
    const Plan& plan = shape.plan;
    const int layers = static_cast<int>(shape.costs->layers.size()) - plan.frozen_layers;
    if (plan.stages() > layers) {
      const std::string need =
          plan.virtual_stages == 1
              ? concat(counted(plan.stages(), "stage"), " need at least one layer each")
              : concat("schedule ", plan.schedule, " needs ", plan.virtual_stages, " virtual stages",
                       plan.devices() == 1 ? "" : concat(" on each of ", plan.devices(), " devices"),
                       " of at least one layer each");
      return Reason{concat("layers ", plan.virtual_stages == 1 ? "" : plan.schedule),
                    concat(need, ": ", counted(layers, "layer"), layers == 1 ? " is too few" : " are too few")};
    }
    if (!space_.partition) return std::nullopt;
    const std::vector<int>& pinned = space_.partition->layers_per_stage;
    if (static_cast<int>(pinned.size()) != plan.stages()) {
      return Reason{"partition", concat("the given partition has ", counted(static_cast<int>(pinned.size()), "stage"),
                                        ", not ", plan.stages())};
    }
    if (std::accumulate(pinned.begin(), pinned.end(), 0) == layers) return std::nullopt;
    return Reason{"partition", concat("the given partition does not have ", counted(layers, "layer"))};
  }

  std::optional<Reason> make_schedule(FamilyShape& shape) {
    const Plan& plan = shape.plan;
    try {
      const int least = pipeline::least_micro_batches(plan);
      if (plan.schedule_text.empty() && plan.chunks < least) {
        return Reason{concat("chunks ", plan.schedule),
                      concat("schedule ", plan.schedule, " on ", counted(plan.devices(), "device"), " needs at least ",
                             counted(least, "micro-batch"), ": ", plan.chunks, " are too few")};
      }
      auto schedule = std::make_shared<const pipeline::Schedule>(pipeline::make_train_schedule(plan, plan.chunks));
      for (const auto& other : made_) {
        if (other->stages == schedule->stages && other->devices == schedule->devices && other->name != schedule->name)
          return Reason{concat("same ", schedule->name),
                        concat("schedule ", schedule->name, " has the same order as ", other->name)};
      }
      if (std::ranges::find(made_, *schedule, [](const auto& made) { return *made; }) == made_.end())
        made_.push_back(schedule);
      shape.schedule = std::move(schedule);
    } catch (const ConfigError& error) {
      return Reason{concat("schedule ", plan.schedule), error.what()};
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Reason> why_no_batch(const Plan& plan) const {
    const std::int64_t micro_batches = std::int64_t{plan.replicas} * space_.processes * plan.chunks;
    const std::int64_t least = plan.global_batch / micro_batches;
    const std::int64_t wanted = std::max<std::int64_t>(1, space_.least_micro_batch);
    if (least < wanted) {
      return Reason{"floor", concat("micro-batches of ", counted(least, "sample"), " are below the least of ", wanted)};
    }
    if (!space_.needs_equal_micro_batches || plan.global_batch % micro_batches == 0) return std::nullopt;
    return Reason{"divisible", concat(counted(plan.global_batch, "sample"), " are not divisible by ",
                                      counted(micro_batches, "micro-batch"))};
  }

  std::shared_ptr<const SlotCosts> costs_of(const Plan& plan) {
    auto& costs =
        costs_[{plan.stages(), plan.replicas, plan.chunks, plan.schedule, plan.virtual_stages, plan.schedule_text}];
    if (!costs) costs = std::make_shared<const SlotCosts>(space_.costs_of(plan));
    return costs;
  }

  const SearchSpace& space_;
  Refusals& refusals_;
  std::vector<int> replicas_;
  std::vector<std::int64_t> batches_;
  std::vector<ScheduleChoice> schedules_;
  std::vector<Recompute> rules_;
  std::vector<std::shared_ptr<const pipeline::Schedule>> made_;
  std::map<std::tuple<int, int, int, std::string, int, std::string>, std::shared_ptr<const SlotCosts>> costs_;
  std::vector<FamilyShape> families_;
};

}  // namespace

void Refusals::add(const std::string& group, const Plan& plan, const std::string& why, double missed_by,
                   bool is_of_memory) {
  auto [found, is_new] = groups_.try_emplace(group, Group{{plan, why, 0, is_of_memory}, missed_by});
  Group& known = found->second;
  if (!is_new && missed_by < known.missed_by)
    known.refusal.plan = plan, known.refusal.why = why, known.missed_by = missed_by;
  ++known.refusal.count;
}

std::vector<Refusal> Refusals::take() && {
  std::vector<Refusal> all;
  for (auto& [group, known] : groups_) all.push_back(std::move(known.refusal));
  std::ranges::stable_sort(all, std::greater{}, &Refusal::count);
  return all;
}

std::vector<FamilyShape> families_of(const SearchSpace& space, Refusals& refusals) {
  return Families(space, refusals).take();
}

}  // namespace sluice::tune
