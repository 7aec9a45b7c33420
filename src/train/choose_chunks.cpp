#include "train/choose_chunks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "pipeline/schedule/generators.h"
#include "train/choose_plan.h"
#include "train/cost_cache.h"
#include "train/state.h"

namespace sluice::train {
namespace {

constexpr int kWarmUp = 1;
constexpr int kRepeats = 3;  // the smallest time counts: noise only adds

double seconds_since(Nanoseconds begin) { return to_s(now_ns() - begin); }

double time_step(TrainStep& step, const StepBatch& batch, int chunks) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < kWarmUp + kRepeats; ++repeat) {
    const Nanoseconds begin = now_ns();
    step.compute_gradients(batch, 0, chunks);
    if (repeat >= kWarmUp) best = std::min(best, seconds_since(begin));
  }
  return best;
}

// No further step can be tried after one that failed: other processes wait in the middle of it, or a thread has not
// come back from it.
bool ends_with_a_failure(const Composition& composition) {
  return composition.communicator || composition.executor->has_abandoned_threads();
}

// Infinite for chunks that a device.memory_limit leaves no room for, where others can be tried.
double time_if_it_fits(const Setup& setup, const Composition& composition, TrainStep& step, const StepBatch& batch,
                       int chunks, bool is_last) {
  try {
    return time_step(step, batch, chunks);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kOutOfMemory) throw;
    if (!is_last && !ends_with_a_failure(composition)) return std::numeric_limits<double>::infinity();
    Plan plan = composition.plan;
    plan.chunks = chunks;
    throw with_what_would_fit(error, setup, plan);
  }
}

// All processes see the mean, so that they decide alike.
double mean_over_processes(const Composition& composition, double seconds) {
  if (!composition.communicator) return seconds;
  const at::Tensor sum = at::full({1}, seconds, at::kDouble);
  composition.communicator->all_reduce(sum).wait();
  return sum.item<double>() / composition.communicator->size();
}

MemoryModel kept_or_measured_model(const Setup& setup) {
  const auto kept = find_costs(setup, micro_batch_size(setup));
  if (!kept) return measure_memory_model(setup);
  return {.layers = kept->costs(), .shares_memory = shares_memory(setup), .processes = setup.place.processes};
}

// Leaves out what a plan that was made for a limit has no room for: where there are other processes, a trial that
// fails ends the run. All processes keep the same numbers.
void leave_out_what_would_not_fit(const Setup& setup, const Composition& composition, std::vector<int>& numbers) {
  const std::uint64_t limit = planned_memory(setup);
  if (limit == 0 || !plan_needs_costs(setup)) return;
  const MemoryModel model = kept_or_measured_model(setup);
  std::erase_if(numbers, [&](int chunks) {
    const bool fits = is_worth_trying(model, composition.plan, chunks, limit);
    return mean_over_processes(composition, fits ? 0 : 1) > 0;
  });
}

std::vector<int> numbers_to_try(const Setup& setup, const Composition& composition, std::int64_t replica_samples) {
  const Plan& plan = composition.plan;
  // Recomputation that was left open was chosen for the plan's number: with fewer a stage might not fit.
  const int least =
      recompute_is_chosen(setup) ? plan.chunks : pipeline::least_micro_batches(plan.schedule, plan.devices());
  const int most =
      static_cast<int>(std::clamp<std::int64_t>(replica_samples, least, std::max(least, 4 * plan.devices())));
  std::vector<int> numbers;
  for (int chunks = least; chunks <= most; chunks *= 2) numbers.push_back(chunks);
  leave_out_what_would_not_fit(setup, composition, numbers);
  if (numbers.empty()) numbers.push_back(plan.chunks);
  return numbers;
}

}  // namespace

bool is_worth_trying(const MemoryModel& model, Plan plan, int chunks, std::uint64_t limit) {
  const auto of_plan = estimate_bytes(model, plan);
  plan.chunks = chunks;
  const auto needed = estimate_bytes(model, plan);
  return !needed || !of_plan || *needed <= std::max(limit, *of_plan);
}

ChunkChoice choose_chunks(const Setup& setup, Composition& composition, const StepBatch& batch) {
  const BufferSnapshot buffers(composition);
  TrainStepOptions options = step_options(setup);
  options.explain_memory = {};  // only the failure that ends the run is explained
  TrainStep step(composition, options);
  const std::vector<int> numbers = numbers_to_try(setup, composition, batch.global_samples / count_replicas(setup));
  ChunkChoice choice;
  double best = std::numeric_limits<double>::infinity();
  for (const int chunks : numbers) {
    const bool is_last_hope = std::isinf(best) && chunks == numbers.back();
    const double time =
        mean_over_processes(composition, time_if_it_fits(setup, composition, step, batch, chunks, is_last_hope));
    choice.why += concat(choice.why.empty() ? "" : ", ", chunks, ": ",
                         std::isinf(time) ? "does not fit" : concat(fixed(time * 1000, 1), " ms"));
    if (time < best) {
      best = time;
      choice.chunks = chunks;
    }
  }
  buffers.restore();
  composition.executor->recorder().clear();
  return choice;
}

int decide_chunks(const Setup& setup, Composition& composition, data::Position start) {
  const auto tell = [&](const std::string& what) {
    if (setup.place.rank == 0) log_info(concat("pipeline.chunks = \"auto\"", what));
  };
  if (setup.config.train.deterministic) {
    tell(concat(" with train.deterministic: ", composition.plan.chunks, ", one per stage, unmeasured"));
    return composition.plan.chunks;
  }
  tell(": timing a few steps without update");
  data::Loader probe(*setup.train_set, train_loader_options(setup), start);
  const ChunkChoice choice = choose_chunks(setup, composition, as_step_batch(*probe.next()));
  tell(concat(": ", choice.chunks, " is fastest (", choice.why, ")"));
  return choice.chunks;
}

}  // namespace sluice::train
