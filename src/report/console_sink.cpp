#include "report/console_sink.h"

#include "core/concat.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "report/console_text.h"
#include "report/prediction.h"
#include "report/time_table.h"

namespace sluice::report {
namespace {

constexpr Nanoseconds kDrawInterval = 100'000'000;

}  // namespace

void ConsoleSink::step(const StepReport& report) {
  if (report.record.breakdown.dropped > 0 && !has_warned_) {
    log_warning(
        "a step has more spans than the recorder keeps; its breakdown is incomplete (spans_dropped in "
        "metrics.jsonl)");
    has_warned_ = true;
  }
  interval_.add(report.record);
  draw_progress(report);
  if (!report.ends_interval) return;
  if (facts_.logs_full_lines) {
    const auto network = report.network != nullptr ? std::optional(report.network->total) : std::nullopt;
    log_lines(full_lines(report.record, facts_, network));
  }
  log_fields(interval_line(interval_, report.record, facts_, report.left));
  interval_ = {};
}

void ConsoleSink::draw_progress(const StepReport& report) {
  if (!progress_is_shown() || now_ns() - last_drawn_ < kDrawInterval) return;
  show_progress(progress_text(report.record, facts_, rate_of(interval_, facts_), report.left));
  last_drawn_ = now_ns();
}

void ConsoleSink::epoch(const EpochReport& report) {
  log_info(epoch_line(report.sums, report.last, report.evaluation, facts_));
}

void ConsoleSink::eval(const EvalRecord& record, const nlohmann::ordered_json&, bool ends_epoch) {
  if (!ends_epoch) log_info(evaluation_line(record, facts_));
}

void ConsoleSink::summary(const SummaryReport& report) {
  show_progress("");
  log_end(report);
  const RunTotals& totals = report.totals;
  const double rate =
      rate_of({.samples = totals.samples, .targets = totals.targets, .duration = totals.duration}, facts_);
  log_result(result_line({report.outcome, report.steps_done, report.wall_s, run_dir_}, report.train_loss,
                         report.evaluation, rate, facts_));
}

void ConsoleSink::log_end(const SummaryReport& report) const {
  const RunTotals& totals = report.totals;
  if (totals.steps == 0) return;
  const std::string which =
      totals.steps < report.steps_done ? concat("of ", counted(totals.steps, "step"), " since the resume") : "";
  if (!totals.slots.empty()) log_table(time_table(mean_times(totals.slots), {}, totals.steps, facts_.processes, which));
  if (const std::string line = prediction_line(report.fields.at("predicted")); !line.empty()) log_info(line);
  if (const std::string line = report.goodput.text(); !line.empty()) log_info(line);
  const double flops_per_s = per_second(all_flops(totals.flops), totals.duration);
  const auto mfu = utilisation(totals.flops, totals.device_s, facts_);
  const std::string of_peak =
      mfu ? concat(fixed(100 * *mfu, 1), " % of ", concat(facts_.peak_flops * 1e-12), " TFLOP/s a device")
          : std::string("peak unknown (profile.peak_tflops)");
  // 0 if other processes compute.
  const std::string of_flops =
      flops_per_s > 0 ? concat("; ", fixed(flops_per_s * 1e-9, 1), " model GFLOP/s, ", of_peak) : "";
  log_info(totals.samples, " samples in ", human_duration(to_s(totals.duration)),
           " of training steps: ", fixed(totals.samples_per_s(), 1), " samples/s", of_flops,
           "; peak memory of the process ", human_bytes(peak_process_memory()));
  if (totals.noise) {
    log_info("gradient noise scale ", fixed(totals.noise->samples, 1), " +- ", fixed(totals.noise->error, 1),
             " samples after ", counted(totals.noise->estimates, "estimate"), "; its norms took ",
             fixed(totals.noise_cost(), 2), " % of the time of the steps");
  } else if (totals.norms > 0) {
    log_info(
        "gradient noise scale: unknown; too few steps, or the mean gradient is indistinguishable from "
        "noise");
  }
  for (const tune::Advice& one : report.advice)
    log_info("advice, from the last ", counted(report.advice_steps, "step"), ": ", one.sentence);
}

}  // namespace sluice::report
