#include "tune/make_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::tune {
namespace {

struct Choice {
  CutRules rules;
  Cut cut;
};

Choice choose_cut(const PlanRequest& request, const Plan& plan, const std::vector<LayerCost>& costs,
                  const StepOverheads& overheads) {
  const CutRules rules = cut_rules(request, plan.chunks, overheads);
  const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
  return {rules, best_cut(std::span(costs).subspan(plan.frozen_layers), schedule, rules)};
}

std::string setting_to_raise(const Plan& plan, bool raise_chunks) {
  if (!plan.schedule_text.empty()) return "give a pipeline.order of more devices or micro-batches";
  return raise_chunks ? "raise pipeline.chunks or pipeline.stages" : "raise pipeline.stages";
}

void warn_of_doubts(const Plan& plan, const std::vector<LayerCost>& costs, const Choice& choice, bool raise_chunks) {
  const auto& [rules, cut] = choice;
  if (!cut.fits && !cut.is_proven) {
    log_warning("found no partition that is estimated to fit in ", kMostTries,
                " tries; using the one that needs the least memory");
  } else if (!cut.fits) {
    const auto peaks =
        device_peaks(std::span(costs).subspan(plan.frozen_layers), pipeline::make_train_schedule(plan, plan.chunks),
                     cut.partition, cut.recompute, rules.most_samples, rules.shares_memory);
    log_warning("no partition into ", counted(plan.stages(), "stage"), " is estimated to fit ",
                human_bytes(rules.memory_limit), " per slot; using the one that needs the least memory, about ",
                human_bytes(std::ranges::max(peaks)), "; ", setting_to_raise(plan, raise_chunks),
                rules.recompute == Recompute::kNone ? ", or set pipeline.recompute = \"auto\"" : "");
  }
  if (cut.fits && !cut.is_proven)
    log_info("stopped the search for the best partition after ", kMostTries, " tries; a slightly better one may exist");
}

// If chunks are open and there is a memory limit: doubles the plan's number until some cut fits.
Choice choose_cut_and_chunks(const PlanRequest& request, Plan& plan, const std::vector<LayerCost>& costs,
                             const StepOverheads& overheads) {
  constexpr int kMostDoublings = 6;
  Choice first = choose_cut(request, plan, costs, overheads);
  if (first.cut.fits || !request.chunks_are_open) return first;
  const int configured = plan.chunks;
  for (int i = 0; i < kMostDoublings && 2 * plan.chunks <= plan.global_batch / request.replicas; ++i) {
    plan.chunks *= 2;
    if (Choice more = choose_cut(request, plan, costs, overheads); more.cut.fits) return more;
  }
  plan.chunks = configured;
  return first;
}

// "stage 0 1.50 ms (-25.0 %), stage 1 ...".
std::string with_differences_from_mean(const std::string& what, const std::vector<double>& seconds) {
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  std::vector<std::string> each;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double off = mean > 0 ? 100 * (seconds[i] / mean - 1) : 0;
    each.push_back(
        concat(what, " ", i, " ", fixed(seconds[i] * 1e3, 2), " ms (", off < 0 ? "" : "+", fixed(off, 1), " %)"));
  }
  return join(each, ", ");
}

Plan settled_plan(const PlanRequest& request) {
  Plan plan = request.uncut();
  plan.partition = request.partition.value_or(Partition{{request.layers - plan.frozen_layers}});
  plan.recompute.assign(request.stages(), request.recompute == Recompute::kLayer);
  if (!request.recompute_of_stage.empty()) plan.recompute = request.recompute_of_stage;
  return plan;
}

}  // namespace

CutRules cut_rules(const PlanRequest& request, int chunks, const StepOverheads& overheads) {
  const double micro_batch = request.mean_micro_batch(chunks);
  return {.micro_batch = micro_batch,
          .most_samples = static_cast<std::uint64_t>(std::ceil(micro_batch)),
          .recompute = request.recompute,
          .recompute_of_stage = request.recompute_of_stage,
          .memory_limit = request.memory_limit,
          .partition = request.partition,
          .shares_memory = request.shares_memory,
          .overheads = overheads};
}

Plan make_plan(const PlanRequest& request, const std::vector<LayerCost>& costs, const StepOverheads& overheads) {
  if (!request.needs_costs()) return settled_plan(request);
  Plan plan = request.uncut();
  Choice choice = choose_cut_and_chunks(request, plan, costs, overheads);
  warn_of_doubts(plan, costs, choice, !request.chunks_are_open);
  plan.partition = std::move(choice.cut.partition);
  plan.recompute = std::move(choice.cut.recompute);
  return plan;
}

Plan plan_of_chunks(const PlanRequest& request, const std::vector<LayerCost>& costs, const StepOverheads& overheads) {
  if (!request.needs_costs()) {
    Plan plan = settled_plan(request);
    static_cast<void>(pipeline::make_train_schedule(plan, plan.chunks));
    return plan;
  }
  Plan plan = request.uncut();
  Choice choice = choose_cut(request, plan, costs, overheads);
  plan.partition = std::move(choice.cut.partition);
  plan.recompute = std::move(choice.cut.recompute);
  return plan;
}

std::string describe_balance(const std::vector<LayerCost>& costs, const Plan& plan, double micro_batch) {
  const auto trained = std::span(costs).subspan(plan.frozen_layers);
  const auto of_stages = stage_times(trained, micro_batch, plan.partition, plan.recompute);
  std::string stages = concat("measured time of each stage for a micro-batch of ", micro_batch,
                              " samples (difference from the mean): ", with_differences_from_mean("stage", of_stages));
  if (plan.stages() == plan.devices()) return stages;
  return concat(stages, "; ", with_differences_from_mean("device", device_times(trained, micro_batch, plan)));
}

}  // namespace sluice::tune
