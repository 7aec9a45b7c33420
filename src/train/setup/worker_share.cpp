#include "train/setup/worker_share.h"

#include <algorithm>

#include "config/value.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "pipeline/micro_batch.h"
#include "ps/policy/batch_plan.h"
#include "train/setup/server_settings.h"

namespace sluice::train {
namespace {

ps::Rational exactly(double number, const char* key) {
  return ps::Rational::parse(config::to_text(config::Value{number}), key);
}

ps::BatchPlan plan_of(const Setup& setup) {
  const config::PsConfig& ps = setup.config.ps;
  try {
    return ps::plan_batches({.workers = ps.workers,
                             .small_workers = ps.small_workers,
                             .base_batch = setup.global_batch,
                             .samples = setup.train_set->size(),
                             .extra_time = exactly(ps.extra_time, "ps.extra_time"),
                             .a = exactly(ps.sample_s, "ps.sample_s"),
                             .b = exactly(ps.step_s, "ps.step_s")});
  } catch (const ConfigError& error) {
    throw ConfigError(
        "ps.policy=\"dual_batch\": ", error.what(),
        " (--small is ps.small_workers, --extra-time is ps.extra_time, --a is ps.sample_s, --b is ps.step_s)");
  }
}

// Rounds to the nearest number of full batches: a last step of few samples would count as much as a full one.
int steps_in(const data::Lease& lease, const WorkerShare& share) {
  const std::int64_t nearest = (std::ssize(lease.samples) + share.batch / 2) / share.batch;
  return static_cast<int>(std::max<std::int64_t>(nearest, 1));
}

}  // namespace

std::int64_t WorkerShare::steps() const { return divided_up(samples, batch); }

WorkerShare share_of(const Setup& setup, int worker) {
  const ps::SyncPolicy policy = policy_of_server(setup.config.ps);
  WorkerShare share{.batch = setup.global_batch, .samples = setup.global_batch};
  if (policy.local_steps > 0) share.samples = policy.local_steps * share.batch;
  if (!policy.pushes_a_share) return share;
  const ps::BatchPlan plan = plan_of(setup);
  const config::PsConfig& ps = setup.config.ps;
  const bool is_small = worker < ps.workers && worker >= ps.workers - ps.small_workers;
  if (is_small) return {.batch = plan.small_batch, .samples = plan.small_samples, .factor = plan.factor};
  share.samples = plan.large_samples > 0 ? plan.large_samples : plan.small_samples;  // a worker beyond ps.workers
  return share;
}

std::vector<data::Lease> steps_of(const data::Lease& lease, const WorkerShare& share) {
  std::vector<data::Lease> steps;
  auto begin = lease.samples.begin();
  for (const std::int64_t size : pipeline::split_sizes(std::ssize(lease.samples), steps_in(lease, share))) {
    steps.push_back({.id = lease.id, .epoch = lease.epoch, .samples = {begin, begin + size}});
    begin += size;
  }
  return steps;
}

// A shorter lease, at the end of an epoch, counts for less.
ps::Round round_of(const data::Lease& lease, const WorkerShare& share) {
  const std::int64_t samples = std::ssize(lease.samples);
  return {.steps = steps_in(lease, share),
          .factor = share.factor * static_cast<double>(samples) / static_cast<double>(share.samples)};
}

}  // namespace sluice::train
