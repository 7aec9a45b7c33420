// The measurement behind pipeline.chunks = "auto": step times. That of the layers: measure_layers.cpp.
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
#include "train/setup.h"
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

// Infinite for chunks that a device.memory_limit leaves no room for. With other processes these would wait in the
// middle of the step: there it ends the run.
double time_if_it_fits(const Composition& composition, TrainStep& step, const StepBatch& batch, int chunks,
                       bool is_last) {
  try {
    return time_step(step, batch, chunks);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kOutOfMemory || composition.communicator || is_last) throw;
    return std::numeric_limits<double>::infinity();
  }
}

// All processes see the mean, so that they decide alike.
double mean_over_processes(const Composition& composition, double seconds) {
  if (!composition.communicator) return seconds;
  const at::Tensor sum = at::full({1}, seconds, at::kDouble);
  composition.communicator->all_reduce(sum).wait();
  return sum.item<double>() / composition.communicator->size();
}

}  // namespace

ChunkChoice choose_chunks(const Setup& setup, Composition& composition, TrainStep& step, const StepBatch& batch) {
  const BufferSnapshot buffers(composition);
  const std::int64_t of_replica = batch.global_samples / count_replicas(setup);
  const Plan& plan = composition.plan;
  // Recomputation that was left open was chosen for the plan's number: with fewer a stage might not fit.
  const int least =
      recompute_is_chosen(setup) ? plan.chunks : pipeline::least_micro_batches(plan.schedule, plan.devices());
  const int most = static_cast<int>(std::clamp<std::int64_t>(of_replica, least, std::max(least, 4 * plan.devices())));
  ChunkChoice choice;
  double best = std::numeric_limits<double>::infinity();
  for (int chunks = least; chunks <= most; chunks *= 2) {
    const bool is_last_hope = std::isinf(best) && 2 * chunks > most;
    const double time =
        mean_over_processes(composition, time_if_it_fits(composition, step, batch, chunks, is_last_hope));
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

int decide_chunks(const Setup& setup, Composition& composition, TrainStep& step, data::Position start) {
  const auto tell = [&](const std::string& what) {
    if (setup.place.rank == 0) log_info(concat("pipeline.chunks = \"auto\"", what));
  };
  if (setup.config.train.deterministic) {
    tell(concat(" with train.deterministic: ", composition.plan.chunks, ", one per stage, unmeasured"));
    return composition.plan.chunks;
  }
  tell(": timing a few steps without update");
  data::Loader probe(*setup.train_set, train_loader_options(setup), start);
  const ChunkChoice choice = choose_chunks(setup, composition, step, as_step_batch(*probe.next()));
  tell(concat(": ", choice.chunks, " is fastest (", choice.why, ")"));
  return choice.chunks;
}

}  // namespace sluice::train
