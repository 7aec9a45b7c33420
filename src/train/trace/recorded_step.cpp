#include "train/trace/recorded_step.h"

#include <optional>
#include <utility>

#include "train/setup/setup.h"
#include "train/setup/step_batch.h"

namespace sluice::train {

RecordedStep run_recorded_step(data::Loader& loader, engine::Engine& engine, std::int64_t step, double lr,
                               const engine::StepRequest& request) {
  Recorder& recorder = engine.recorder();
  const Nanoseconds begin = now_ns();
  std::optional<data::Batch> batch;
  {
    const SpanScope span(recorder.process(), Phase::kLoadWait);
    batch = loader.next();
  }
  StepStats stats = engine.step().run(as_step_batch(*batch, engine.step().task()), step, lr, request);
  return {std::move(*batch), std::move(stats), recorder.collect(step + 1, begin, now_ns())};
}

}  // namespace sluice::train
