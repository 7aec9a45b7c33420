#include "report/console_text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <sstream>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/text.h"

namespace sluice::report {
namespace {

using profiler::Part;
using profiler::SlotBreakdown;

constexpr double kLeastPercent = 1;

struct Share {
  const char* name;
  double percent;
};

std::vector<Share> shares_of(const StepSums& sums) {
  if (!sums.times || sums.duration <= 0) return {};
  const SlotBreakdown& times = *sums.times;
  const auto percent = [&](Nanoseconds time) {
    return 100 * static_cast<double>(time) / static_cast<double>(sums.duration);
  };
  std::vector<Share> shares{{"load", percent(times.load())},
                            {"forward", percent(times.forward())},
                            {"backward", percent(times.backward())},
                            {"transfer", percent(times.transfer())},
                            {"allreduce", percent(times[Part::kAllReduce])},
                            {"skew", percent(times[Part::kSkew])},
                            {"optimizer", percent(times.optimizer())},
                            {"bubble", percent(times.bubble())},
                            {"other", percent(times[Part::kOther])}};
  std::erase_if(shares, [](const Share& share) { return share.percent < kLeastPercent; });
  std::ranges::stable_sort(shares, std::greater{}, &Share::percent);
  return shares;
}

std::string rate_text(double rate, const RunFacts& facts) {
  const int decimals = rate < 100 ? 1 : 0;
  return concat(fixed(rate, decimals), facts.is_text ? " tokens/s" : " samples/s");
}

std::string score_text(const Score& score, const ScoreSums& sums, const char* of = "") {
  return concat(", ", of, score.title, " ", fixed(score.of(sums), 2), score.is_percent ? " %" : "");
}

// With the scores that follow from the loss.
std::string loss_text(const ScoreSums& sums, const RunFacts& facts) {
  std::string text = concat("loss ", fixed(sums.loss(), 4));
  for (const Score& score : facts.scores) {
    if (score.needs == 0) text += score_text(score, sums);
  }
  return text;
}

std::string main_score_text(const ScoreSums& sums, const RunFacts& facts, const char* of = "") {
  const Score* const score = main_score(facts.scores, sums);
  return score != nullptr ? score_text(*score, sums, of) : "";
}

std::string validation_text(const EvalRecord& record, const RunFacts& facts) {
  std::string text = concat("validation ", loss_text(record.scores, facts));
  for (const Score& score : facts.scores) {
    if (score.needs > 0 && score.is_known(record.scores)) text += score_text(score, record.scores);
  }
  return text + (record.averaged ? main_score_text(*record.averaged, facts, "averaged weights ") : "");
}

// "epoch 3 of 5". Counts remaining batches, because epochs before a resume may have had another number of them.
std::string epoch_text(const StepRecord& last, const RunFacts& facts) {
  const std::int64_t batches_to_the_end = last.epoch * last.batches + last.batch + 1 + facts.total_steps - last.step;
  return concat("epoch ", last.epoch + 1, " of ", divided_up(batches_to_the_end, last.batches));
}

std::string step_text(std::int64_t step, const RunFacts& facts) {
  return concat("step ", step, "/", facts.total_steps);
}

}  // namespace

std::string clock_text(double seconds) {
  constexpr double kNoDuration = 1e12;
  if (!(seconds >= 0 && seconds < kNoDuration)) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  std::ostringstream out;
  out << std::setfill('0');
  if (whole >= 3600) {
    out << whole / 3600 << ":" << std::setw(2) << whole % 3600 / 60;
  } else {
    out << whole / 60;
  }
  out << ":" << std::setw(2) << whole % 60;
  return std::move(out).str();
}

double rate_of(const StepSums& sums, const RunFacts& facts) {
  return per_second(static_cast<double>(facts.is_text ? sums.targets : sums.samples), sums.duration);
}

std::string interval_line(const StepSums& sums, const StepRecord& last, const RunFacts& facts, const TimeLeft& left) {
  std::ostringstream lr;
  lr << std::setprecision(4) << last.lr;
  std::string line = concat(step_text(last.step, facts), "  loss ", fixed(sums.loss(), 4), "  lr ", lr.str(), "  ",
                            rate_text(rate_of(sums, facts), facts), "  ETA ",
                            left.lacks_evaluations ? "(without evaluations) " : "", clock_text(left.seconds));
  for (const Share& share : shares_of(sums)) line += concat("  ", share.name, " ", fixed(share.percent, 0), " %");
  return line;
}

std::string progress_text(const StepRecord& last, const RunFacts& facts, double rate, const TimeLeft& left) {
  return concat(step_text(last.step, facts), "  loss ", fixed(last.stats.loss, 4), "  ETA ", clock_text(left.seconds),
                "  ", rate_text(rate, facts), "  ", epoch_text(last, facts),
                left.lacks_evaluations ? "  ETA without evaluations" : "");
}

std::string full_lines(const StepRecord& record, const RunFacts& facts, std::optional<double> network_bytes_per_s) {
  constexpr int kDecimals = 6;
  const std::string clock = facts.is_on_gpu() ? "CUDA event " : "device event ";
  const auto ms = [](Nanoseconds time) { return fixed(to_ms(time), kDecimals); };
  const auto whole = [](double number) { return fixed(std::floor(number), 0); };
  const bool crosses = facts.sync_bytes > 0 && facts.spans_machines;
  const auto of_syncs = [&](double number) { return facts.by_pushes ? "not known" : fixed(number, kDecimals); };
  std::string times;
  if (!record.breakdown.slots.empty()) {
    const SlotBreakdown mean = record.breakdown.mean();
    times = concat("data loading time cost (ms) by ", clock, ms(mean.load()), "\nforward time cost (ms) by ", clock,
                   ms(mean.forward()), "\nbackwards time cost: (ms) by ", clock, ms(mean.backward()),
                   "\nall-reduce time cost (ms) by ", clock, ms(mean.all_reduce), ", exposed ",
                   ms(mean.all_reduce_exposed()), ", of it waiting for the slowest ", ms(mean[Part::kSkew]), "\n");
  }
  return concat(
      times, "sample_num_throughput (images/second): ",
      whole(per_second(static_cast<double>(record.stats.samples), record.breakdown.step)),
      "\ncommunication frequency (cross machine sync/second): ",
      of_syncs(crosses ? per_second(1.0, record.breakdown.step) : 0.0),
      "\nsize_params_ddp_sum: ", of_syncs(static_cast<double>(facts.sync_bytes)),
      "\nnetwork bandwidth (bytes/second): ", network_bytes_per_s ? whole(*network_bytes_per_s) : "not known yet",
      "\nepoch = ", record.epoch, ", batch index = ", record.batch, "/", record.batches);
}

std::string epoch_line(const StepSums& sums, const StepRecord& last, const EvalRecord* evaluation,
                       const RunFacts& facts) {
  const bool is_whole = sums.first_batch == 0 && sums.last_batch + 1 == last.batches;
  const std::string batches =
      is_whole ? ""
               : concat(" (batches ", sums.first_batch + 1, " to ", sums.last_batch + 1, " of ", last.batches, ")");
  return concat(epoch_text(last, facts), batches, ": train ", loss_text(sums.all_scores(), facts),
                main_score_text(sums.all_scores(), facts),
                evaluation != nullptr ? concat("; ", validation_text(*evaluation, facts)) : "", "; ",
                human_duration(to_s(sums.duration) + (evaluation != nullptr ? evaluation->seconds : 0)));
}

std::string evaluation_line(const EvalRecord& record, const RunFacts& facts) {
  return concat("evaluation after ", step_text(record.step, facts), ": ", validation_text(record, facts), "; ",
                human_duration(record.seconds));
}

std::string result_line(const RunResult& result, std::optional<double> train_loss,
                        const std::optional<EvalRecord>& evaluation, double rate, const RunFacts& facts) {
  return concat(result.outcome, " after ", step_text(result.steps_done, facts), ": ",
                train_loss ? concat("train loss ", fixed(*train_loss, 4), "; ") : "",
                evaluation ? concat(validation_text(*evaluation, facts), "; ") : "", rate_text(rate, facts), "; ",
                human_duration(result.wall_s), "; ", result.run_dir);
}

}  // namespace sluice::report
