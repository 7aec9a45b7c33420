#include "report/step_record.h"

namespace sluice::report {

void StepSums::add(const StepRecord& record) {
  if (steps++ == 0) first_batch = record.batch;
  last_batch = record.batch;
  samples += record.stats.samples;
  if (!record.stats.skipped) {  // the loss of a skipped step is meaningless
    loss_sum += record.stats.loss * static_cast<double>(record.stats.targets);
    targets += record.stats.targets;
    if (record.stats.correct) correct += *record.stats.correct;
  }
  duration += record.breakdown.step;
  if (record.breakdown.slots.empty()) return;
  if (!times) times.emplace();
  profiler::add(*times, record.breakdown.mean());
}

}  // namespace sluice::report
