#include "train/trace/gpu_kernels.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/text.h"
#include "profiler/level_warning.h"
#include "profiler/phase_names.h"
#include "train/trace/longest_rows.h"

namespace sluice::train {
namespace {

// Discards recorded spans. Requires: no caller needs them.
bool has_gpu(engine::Engine& engine) {
  const StepSpans spans = engine.recorder().collect(0, 0, 0);
  return std::ranges::any_of(spans.slots, [](const auto& slot) { return slot.stream.gpu >= 0; });
}

}  // namespace

std::unique_ptr<GpuKernels> GpuKernels::start(const std::string& level, bool makes_steps, engine::Engine& engine) {
  if (level != "cupti") return nullptr;
  std::string why = makes_steps ? "no device of the run is a GPU" : "a parameter server's workers make the steps";
  const bool has_events = makes_steps && has_gpu(engine);
  auto session = has_events ? cupti::Session::start({}, why) : nullptr;
  if (!session) {
    profiler::warn_of_level(level, why, has_events ? "CUDA events and clocks" : "clocks");
    return nullptr;
  }
  return std::unique_ptr<GpuKernels>(new GpuKernels(std::move(session), engine.recorder()));
}

GpuKernels::GpuKernels(std::unique_ptr<cupti::Session> session, Recorder& recorder)
    : running_(recorder, std::make_unique<Running>(std::move(session))) {
  running_.attach_marks();
}

void GpuKernels::report(report::Reporter* reporter) {
  const cupti::StepKernels& steps = running_->steps;
  if (steps.steps() == 0) return;
  LongestRows table;
  for (const cupti::StepKernels::Row& row : steps.rows())
    table.add({{"phase", profiler::phase_word(row.phase)},
               {"layer", row.layer.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.layer)},
               {"kernel", row.kernel},
               {"calls", row.sum.calls},
               {"time_ms", to_ms(row.sum.time)}},
              row.sum.time);
  const cupti::Counts& counts = steps.counts();
  reporter->event("kernels", {{"steps", steps.steps()},
                              {"rows", table.rows()},
                              {"rest_ms", table.rest_ms()},
                              {"records", counts.work},
                              {"dropped", counts.dropped},
                              {"without_times", counts.without_times},
                              {"without_launch", counts.without_launch},
                              {"late", counts.late},
                              {"outside", counts.outside},
                              {"elsewhere", counts.elsewhere},
                              {"disagreements", counts.disagreements},
                              {"unknown", counts.unknown},
                              {"overhead_ms", to_ms(counts.overhead)},
                              {"waits_ms", to_ms(counts.waits)}});
  log_info("CUPTI: ", counted(static_cast<std::int64_t>(counts.work), "record"), " in ", counted(steps.steps(), "step"),
           ", ", counts.dropped, " dropped, ", counts.late, " late, ", counts.disagreements,
           " whose tag and time disagree; CUPTI reports an overhead of ", fixed(to_ms(counts.overhead), 1), " ms");
}

}  // namespace sluice::train
