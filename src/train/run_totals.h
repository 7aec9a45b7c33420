// run_totals: what the steps of this process add up to, for rates, the table at the end and the summary.
// Not here: single steps' records (reporter.h). Values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/recorder.h"
#include "profiler/advice.h"
#include "profiler/breakdown.h"

namespace sluice::train {

// What does not change from step to step.
struct RunFacts {
  Plan plan;
  int replicas = 1;                  // over all processes
  std::int64_t total_steps = 0;      // of the whole run
  std::uint64_t gradient_bytes = 0;  // of one replica
  std::uint64_t parameter_bytes = 0, optimizer_bytes = 0;
  bool is_on_gpu = false;
  int data_workers = 0;
  double peak_flops = 0;  // of one device, per second; 0: unknown

  [[nodiscard]] std::uint64_t sync_bytes() const { return replicas > 1 ? gradient_bytes : 0; }
  // Model FLOP/s over the stated peak of all devices.
  [[nodiscard]] double utilisation(double flops_per_s) const {
    return flops_per_s / (peak_flops * plan.stages() * replicas);
  }
};

struct RunTotals {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  Nanoseconds duration = 0;
  double flops = 0;
  std::vector<profiler::StageBreakdown> stages;  // [place]; empty when nothing was recorded
  bool is_complete = true;                       // false: some spans were dropped
  std::map<int, Nanoseconds> waited_for_rank;    // by the first to be ready, for the last
  Nanoseconds evaluation = 0, checkpoints = 0;   // outside of steps

  void add_step(std::int64_t samples_of_step, double flops_of_step, const profiler::StepBreakdown& breakdown);
  void add_outside(const std::vector<Span>& spans);

  [[nodiscard]] double per_second(double amount) const { return duration > 0 ? amount / to_s(duration) : 0.0; }
  [[nodiscard]] double mean_ms(Nanoseconds total) const { return to_ms(total) / static_cast<double>(steps); }
};

// What the rules of profiler/advice.h look at.
[[nodiscard]] profiler::AdviceInput advice_input(const RunTotals& totals, const RunFacts& facts,
                                                 double network_bytes_per_s);

// "where the time went": a row for each place, the mean of the steps; then what lay between the steps.
[[nodiscard]] std::string table_of(const RunTotals& totals);

}  // namespace sluice::train
