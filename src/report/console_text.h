// console_text: texts of a training run. Epochs and steps count from 1, except in the nine lines of PipeTransformer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/run_totals.h"
#include "report/step_record.h"

namespace sluice::report {

// "3:12", "1:02:03"; "?" for an invalid duration.
[[nodiscard]] std::string clock_text(double seconds);

// "step 120/2814  loss 0.4321  lr 0.05  712 samples/s  ETA 3:12  backward 55 %  forward 30 %": means over the steps
// since the last line, for log_fields(). Token models count tokens. Parts of the time below 1 % are omitted; the
// largest come first. If the time of evaluations is unknown: "ETA (without evaluations) 3:12".
[[nodiscard]] std::string interval_line(const StepSums& sums, const StepRecord& last, const RunFacts& facts,
                                        const TimeLeft& left);

// The fields ordered by importance, because a narrow terminal cuts the last ones.
[[nodiscard]] std::string progress_text(const StepRecord& last, const RunFacts& facts, double rate,
                                        const TimeLeft& left);

[[nodiscard]] double rate_of(const StepSums& sums, const RunFacts& facts);

// The nine log lines of a step in PipeTransformer's words, for existing notes and scripts. They cover a single step;
// epoch and batch count from 0; six decimals; syncs are those between machines. Times are means over the slots; their
// lines are missing if no times were recorded.
[[nodiscard]] std::string full_lines(const StepRecord& record, const RunFacts& facts,
                                     std::optional<double> network_bytes_per_s);

// "epoch 3 of 5: train loss 0.4321, top-1 85.21 %; validation loss 0.4012, top-1 86.10 %, top-5 99.30 %; 12.3 s". Names
// the batches if only part of the epoch was trained (after a resume, or at the last step).
[[nodiscard]] std::string epoch_line(const StepSums& sums, const StepRecord& last, const EvalRecord* evaluation,
                                     const RunFacts& facts);

[[nodiscard]] std::string evaluation_line(const EvalRecord& record, const RunFacts& facts);

// Input of "done after step 2814/2814: train loss 0.4012; validation loss ...; 712 samples/s; 4 min 12 s; runs/mine".
struct RunResult {
  std::string outcome;
  std::int64_t steps_done = 0;
  double wall_s = 0;
  std::string run_dir;
};
[[nodiscard]] std::string result_line(const RunResult& result, std::optional<double> train_loss,
                                      const std::optional<EvalRecord>& evaluation, double rate, const RunFacts& facts);

}  // namespace sluice::report
