#include "ps/policy/batch_plan.h"

#include "core/error.h"
#include "core/text.h"

namespace sluice::ps {
namespace {

void check_request(const BatchPlanRequest& request) {
  if (request.small_workers > request.workers) {
    throw ConfigError("--small ", request.small_workers, " is more than --workers ", request.workers,
                      "; at most all workers take the small batch");
  }
  if (request.samples < request.workers) {
    throw ConfigError("--samples ", request.samples, " are fewer than --workers ", request.workers,
                      "; every worker needs a sample");
  }
  if ((Rational(1) - request.extra_time).is_positive()) {
    throw ConfigError("--extra-time ", request.extra_time.value(),
                      " is less than 1: smaller batches take longer, not shorter; give 1.05 for 5 % more");
  }
  if (!request.b.is_positive() || (request.small_b && !request.small_b->is_positive()))
    throw ConfigError("--b must be above 0: if a step has no fixed cost, small batches take as long as large ones");
}

struct StepCosts {
  Rational a;
  Rational b;

  [[nodiscard]] Rational time(std::int64_t batch, const Rational& samples) const { return (a + b / batch) * samples; }
};

StepCosts costs_of_small(const BatchPlanRequest& request) {
  return {request.small_a.value_or(request.a), request.small_b.value_or(request.b)};
}

std::int64_t small_batch_of(const BatchPlanRequest& request, const Rational& base, std::int64_t small_samples) {
  const auto [a, b] = costs_of_small(request);
  const Rational left = request.extra_time * base / small_samples - a;  // remaining time per sample, for the steps' b
  if (!left.is_positive())
    throw ConfigError(
        "no batch size lets the small workers finish their samples within --extra-time; raise --extra-time");
  return (b / left).floor();
}

}  // namespace

BatchPlan plan_batches(const BatchPlanRequest& request) {
  check_request(request);
  const int small = request.small_workers, large = request.workers - small;
  const Rational even = Rational(request.samples) / request.workers;
  const StepCosts costs{request.a, request.b};
  const Rational base = costs.time(request.base_batch, even);
  BatchPlan plan{.base_seconds = base.value()};
  const std::int64_t share = small == 0 ? even.floor() : (request.extra_time * even).floor();
  if (large > 0) {
    plan.large_samples = share;
    plan.large_seconds = costs.time(request.base_batch, share).value();
  }
  if (small == 0) return plan;
  const std::int64_t left = request.samples - share * large;
  plan.small_samples = left / small;
  if (left <= 0 || plan.small_samples == 0) {
    throw ConfigError("with --extra-time ", request.extra_time.value(), " the ", counted(large, "large worker"),
                      " take all ", request.samples, " samples; lower it, or give more small workers");
  }
  plan.small_batch = small_batch_of(request, base, plan.small_samples);
  if (plan.small_batch < (request.allows_tiny ? 1 : kLeastBatch)) {
    throw ConfigError("the small batch would be ", plan.small_batch, ", below ", kLeastBatch,
                      ": the noise of such a batch costs more than the plan gains; lower --extra-time, give more "
                      "small workers (sluice batch-plan --force plans it all the same)");
  }
  if (plan.small_batch < kLeastBatch)
    plan.small_lr_factor = static_cast<double>(plan.small_batch) / static_cast<double>(request.base_batch);
  plan.factor = static_cast<double>(plan.small_samples) / static_cast<double>(share);
  plan.small_seconds = costs_of_small(request).time(plan.small_batch, plan.small_samples).value();
  return plan;
}

}  // namespace sluice::ps
