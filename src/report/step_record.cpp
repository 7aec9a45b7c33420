#include "report/step_record.h"

namespace sluice::report {

void StepSums::add(const StepRecord& record) {
  if (steps++ == 0) first_batch = record.batch;
  last_batch = record.batch;
  samples += record.stats.samples;
  if (!record.stats.skipped) {  // the loss of a skipped step is meaningless
    loss_sum += record.stats.loss * static_cast<double>(record.stats.targets);
    targets += record.stats.targets;
    if (record.stats.scores) scores += *record.stats.scores;
  }
  duration += record.breakdown.step;
  if (record.breakdown.slots.empty()) return;
  if (!times) times.emplace();
  profiler::add(*times, record.breakdown.mean());
}

ScoreSums StepSums::all_scores() const {
  const bool are_whole = scores.targets == targets;  // a language model counts in some steps only
  return {.loss_sum = loss_sum, .targets = targets, .sums = are_whole ? scores.sums : std::vector<double>()};
}

}  // namespace sluice::report
