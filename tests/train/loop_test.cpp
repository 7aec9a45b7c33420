// What a loop still has to do, beside a count over all of its steps.
#include "train/run/loop.h"

#include <gtest/gtest.h>

namespace sluice::train {
namespace {

// Evaluations and checkpoints as Loop makes them, one step after the other.
report::RemainingWork counted_from(const LoopOptions& options, std::int64_t steps_done, std::int64_t batches) {
  report::RemainingWork count;
  const config::TrainConfig& train = options.train;
  for (std::int64_t step = steps_done; step <= options.total_steps; ++step) {
    const bool is_last = step == options.total_steps;
    const bool by_steps = train.eval_every_steps > 0 && step % train.eval_every_steps == 0;
    const bool by_epochs =
        train.eval_every_steps == 0 && step % batches == 0 && step / batches % train.eval_every_epochs == 0;
    count.evaluations += is_last || by_steps || by_epochs ? 1 : 0;
    const bool saves = options.checkpoint_every_steps > 0 && step % options.checkpoint_every_steps == 0;
    count.checkpoints += saves || (is_last && options.saves_at_end) ? 1 : 0;
  }
  return count;
}

TEST(RemainingWork, CountsTheEvaluationsAndCheckpointsOfTheStepsThatAreLeft) {
  constexpr std::int64_t kBatches = 5;
  for (const std::int64_t total : {1, 4, 5, 13, 20, 30})
    for (const int eval_steps : {0, 1, 3, 10})
      for (const int eval_epochs : {1, 2, 3})
        for (const std::int64_t checkpoint_steps : {0, 1, 4, 10})
          for (const bool at_end : {false, true}) {
            LoopOptions options{
                .total_steps = total, .saves_at_end = at_end, .checkpoint_every_steps = checkpoint_steps};
            options.train.eval_every_steps = eval_steps;
            options.train.eval_every_epochs = eval_epochs;
            for (std::int64_t done = 1; done <= total; ++done) {
              const EpochPosition here{(done - 1) / kBatches, (done - 1) % kBatches, kBatches};
              const report::RemainingWork expected = counted_from(options, done, kBatches);
              const report::RemainingWork counted = remaining_work(options, done, here, /*evaluates=*/true);
              ASSERT_EQ(counted.evaluations, expected.evaluations)
                  << done << " of " << total << ", every " << eval_steps << " steps, " << eval_epochs << " epochs";
              ASSERT_EQ(counted.checkpoints, expected.checkpoints)
                  << done << " of " << total << ", every " << checkpoint_steps << " steps, at the end: " << at_end;
              EXPECT_EQ(remaining_work(options, done, here, /*evaluates=*/false).evaluations, 1);
            }
          }
  EXPECT_EQ(remaining_work({.total_steps = 5, .checkpoint_every_minutes = 2}, 1, {0, 0, 5}, true).checkpoint_interval_s,
            120);
}

}  // namespace
}  // namespace sluice::train
