// console_text: what a run says to people while it trains: the line of an interval, the nine lines of PipeTransformer's
// users, the summary of an epoch, the one line it comes to. Not here: when it is said (reporter.h), tables
// (time_table.h). Epochs and steps count from 1, but for the nine lines. Values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/run_totals.h"
#include "report/step_record.h"

namespace sluice::report {

// exp(loss), where the loss is the plain cross-entropy of tokens.
[[nodiscard]] std::optional<double> perplexity(double loss, const RunFacts& facts);

// "3:12", "1:02:03"; "?" for what is no duration.
[[nodiscard]] std::string clock_text(double seconds);

// "step 120/2814  loss 0.4321  lr 0.05  712 samples/s  ETA 3:12  backward 55 %  forward 30 %": means over the steps
// since the line before. Of texts it counts tokens. Parts of the time below 1 % are left out; the largest come first,
// for log_fields(). A time left that lacks evaluations is "ETA (without evaluations) 3:12".
[[nodiscard]] std::string interval_line(const StepSums& sums, const StepRecord& last, const RunFacts& facts,
                                        const TimeLeft& left);

// The same in the order of what a narrow terminal must not lose.
[[nodiscard]] std::string progress_text(const StepRecord& last, const RunFacts& facts, double rate,
                                        const TimeLeft& left);

// Samples, or of texts tokens, per second.
[[nodiscard]] double rate_of(const StepSums& sums, const RunFacts& facts);

// The nine lines of a log step in the words that PipeTransformer's users have in their notes and scripts: the step
// alone; epoch and batch from 0; whole images; six decimals. Syncs are those between machines. Times are means over the
// slots; their lines are missing where nothing was recorded.
[[nodiscard]] std::string full_lines(const StepRecord& record, const RunFacts& facts,
                                     std::optional<double> network_bytes_per_s);

// "epoch 3 of 5: train loss 0.4321, top-1 85.21 %; validation loss 0.4012, top-1 86.10 %, top-5 99.30 %; 12.3 s".
// Where it was not trained whole, from a resume or to the last step, it says which batches.
[[nodiscard]] std::string epoch_line(const StepSums& sums, const StepRecord& last, const EvalRecord* evaluation,
                                     const RunFacts& facts);

// An evaluation within an epoch.
[[nodiscard]] std::string evaluation_line(const EvalRecord& record, const RunFacts& facts);

// "done after step 2814/2814: train loss 0.4012; validation loss ...; 712 samples/s; 4 min 12 s; runs/mine".
struct RunResult {
  std::string outcome;
  std::int64_t steps_done = 0;
  double wall_s = 0;
  std::string run_dir;
};
[[nodiscard]] std::string result_line(const RunResult& result, std::optional<double> train_loss,
                                      const std::optional<EvalRecord>& evaluation, double rate, const RunFacts& facts);

}  // namespace sluice::report
