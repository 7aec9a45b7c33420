#include "tune/plan_family.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/text.h"
#include "tune/memory_model.h"

namespace sluice::tune {
namespace {

std::span<const LayerCost> cut_layers(const FamilyShape& shape) {
  return std::span(shape.costs->layers).subspan(shape.plan.frozen_layers);
}

double mean_micro_batch(const Plan& plan, const SearchSpace& space) {
  const double samples = static_cast<double>(plan.global_batch) / (plan.replicas * space.processes);
  return samples / plan.chunks;
}

std::vector<std::uint64_t> frozen_of_devices(const FamilyShape& shape, const SearchSpace& space) {
  std::vector<std::uint64_t> bytes(shape.plan.devices(), 0);
  if (shape.plan.frozen_layers == 0) return bytes;
  const MemoryModel model{shape.costs->layers, space.shares_memory, space.processes};
  for (std::size_t device = 0; device < bytes.size(); ++device) bytes[device] = frozen_bytes(model, shape.plan, device);
  return bytes;
}

CutRules rules_of(const FamilyShape& shape, const SearchSpace& space, double micro_batch) {
  return {.micro_batch = micro_batch,
          .most_samples = static_cast<std::uint64_t>(largest_micro_batch(shape.plan, space.processes)),
          .recompute = shape.recompute,
          .memory_limit = space.memory_limit,
          .partition = space.partition,
          .shares_memory = space.shares_memory,
          .overheads = shape.costs->overheads};
}

}  // namespace

CutBound bound_of(const FamilyShape& shape, const SearchSpace& space) {
  const double micro_batch = mean_micro_batch(shape.plan, space);
  const SlotCosts& costs = *shape.costs;
  return {cut_layers(shape), *shape.schedule, shape.recompute,
          micro_batch,       costs.overheads, frozen_seconds(shape.plan, costs.layers, micro_batch, costs.overheads)};
}

PlanFamily::PlanFamily(const FamilyShape& shape, const SearchSpace& space)
    : shape_(shape),
      layers_(cut_layers(shape)),
      micro_batch_(mean_micro_batch(shape.plan, space)),
      rules_(rules_of(shape, space, micro_batch_)),
      frozen_s_(frozen_seconds(shape.plan, shape.costs->layers, micro_batch_, shape.costs->overheads)),
      simulator_(*shape.schedule),
      bound_(bound_of(shape, space)),
      memory_(layers_, *shape.schedule, rules_, frozen_of_devices(shape, space)) {
  const auto slowdowns = std::ranges::minmax(layers_, {}, &LayerCost::slowdown);
  slows_ = shape.costs->overheads.contenders > 1 && slowdowns.min.slowdown >= 1 && slowdowns.max.slowdown > 1;
}

double PlanFamily::count_cuts() const {
  if (rules_.partition) return 1;
  double count = 1;  // choices of the ends of all stages except the last
  for (int i = 1; i < stages(); ++i) count = count * (layers() - i) / i;
  return count;
}

bool PlanFamily::looks_at_all_choices() const {
  return rules_.recompute != Recompute::kOpen || stages() / shape_.plan.devices() <= CutMemory::kMostOpenStages;
}

// Step time without contention and all-reduces.
double PlanFamily::seconds_alone(const StepCosts& costs) const {
  StepCosts alone = costs;
  alone.overheads.contenders = 1;
  alone.overheads.runnable = std::numeric_limits<double>::infinity();
  alone.overheads.all_reduce.reset();
  return predict_step(simulator_, alone).seconds;
}

ScoredCut PlanFamily::score(const Partition& partition, double worst) {
  ScoredCut best{.partition = partition};
  for (const std::vector<bool>& recompute : memory_.choices(partition)) {
    StepCosts costs = step_costs(layers_, partition, recompute, micro_batch_, rules_.overheads);
    costs.frozen_s = frozen_s_;
    if (slows_ && seconds_alone(costs) > worst) continue;
    ++tried;
    const double seconds = predict_step(simulator_, costs).seconds;
    if (seconds <= worst && seconds < best.seconds) best.recompute = recompute, best.seconds = seconds;
  }
  return best;
}

StepPrediction PlanFamily::predict(const ScoredCut& cut) const {
  StepCosts costs = step_costs(layers_, cut.partition, cut.recompute, micro_batch_, rules_.overheads);
  costs.frozen_s = frozen_s_;
  return predict_step(simulator_, costs);
}

Partition PlanFamily::even_cut() const {
  std::vector<double> work{0};
  for (const LayerCost& layer : layers_) work.push_back(work.back() + layer.seconds(micro_batch_));
  Partition even;
  for (int stage = 0, begin = 0; stage < stages(); ++stage) {
    const int last_end = layers() - (stages() - 1 - stage);
    int end = stage + 1 == stages() ? last_end : begin + 1;
    const double wanted = work.back() * (stage + 1) / stages();
    while (end < last_end && std::abs(work[end + 1] - wanted) <= std::abs(work[end] - wanted)) ++end;
    even.layers_per_stage.push_back(end - begin);
    begin = end;
  }
  return even;
}

PlanFamily::Need PlanFamily::least_need() {
  Need need{.cut = smallest_cut(layers_, *shape_.schedule, rules_)};
  const std::vector<std::uint64_t> peaks = memory_.least_peaks(need.cut.partition);
  const auto device = static_cast<int>(std::ranges::max_element(peaks) - peaks.begin());
  need.bytes = peaks[device];
  std::vector<int> own;
  const std::vector<int> owners = pipeline::stage_owners(*shape_.schedule);
  for (int stage = 0; stage < stages(); ++stage)
    if (owners[stage] == device) own.push_back(stage);
  need.sentence =
      concat(own.size() == 1 ? numbered("stage", own) : concat("device ", device, " (", numbered("stage", own), ")"),
             " needs ", human_bytes(need.bytes), " of ", human_bytes(rules_.memory_limit));
  return need;
}

}  // namespace sluice::tune
