#include "train/reporter.h"

#include <sys/resource.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::train {
namespace {

using nlohmann::ordered_json;
using profiler::StageBreakdown;

// The phases of a step in the order of the table; they and idle add up to the step.
constexpr std::array kTablePhases{Phase::kLoad,     Phase::kForward,   Phase::kBackward,
                                  Phase::kTransfer, Phase::kAllReduce, Phase::kOptimizer};

double per_second(double amount, Nanoseconds duration) { return duration > 0 ? amount / to_s(duration) : 0.0; }

void add_breakdown(ordered_json& fields, const profiler::StepBreakdown& breakdown) {
  if (breakdown.stages.empty()) {  // profile.level = "off": nothing was measured
    for (const char* name : {"load_ms", "forward_ms", "backward_ms", "transfer_ms", "allreduce_exposed_ms",
                             "optimizer_ms", "idle_ms", "slowest_stage", "allreduce_ms", "device_busy"}) {
      fields[name] = nullptr;
    }
    return;
  }
  const StageBreakdown mean = breakdown.mean();
  fields["load_ms"] = to_ms(mean[Phase::kLoad]);
  fields["forward_ms"] = to_ms(mean[Phase::kForward]);
  fields["backward_ms"] = to_ms(mean[Phase::kBackward]);
  fields["transfer_ms"] = to_ms(mean[Phase::kTransfer]);
  fields["allreduce_exposed_ms"] = to_ms(mean[Phase::kAllReduce]);
  fields["optimizer_ms"] = to_ms(mean[Phase::kOptimizer]);
  fields["idle_ms"] = to_ms(mean.idle);
  fields["slowest_stage"] = index(breakdown.slowest_stage());
  // What is known: sums inside the process and the wait for others at the end. What backward hides is not timed.
  fields["allreduce_ms"] = to_ms(mean[Phase::kAllReduce]);
  fields["device_busy"] = breakdown.device_busy();
}

}  // namespace

std::uint64_t peak_process_memory() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

Reporter::Reporter(const RunDir& run_dir, const Plan& plan, int replicas, std::uint64_t gradient_bytes,
                   std::int64_t total_steps, bool tensorboard, ReporterStart start)
    : plan_(plan),
      replicas_(replicas),
      sync_bytes_(replicas > 1 ? gradient_bytes : 0),
      total_steps_(total_steps),
      metrics_(run_dir.metrics_file(), start.metrics) {
  if (tensorboard) events_ = std::make_unique<EventWriter>(run_dir.tensorboard_dir(), start.resumed_step);
}

void Reporter::plan(const ordered_json& description) {
  metrics_.write("plan", description);
  if (events_) events_->text(0, "plan", concat("```json\n", description.dump(2), "\n```"));
}

void Reporter::event(const std::string& name, const ordered_json& fields) { metrics_.write(name, fields); }

MetricsPosition Reporter::sync() { return metrics_.sync(); }

void Reporter::step(const StepRecord& record, bool to_log) {
  ++steps_;
  samples_ += record.stats.samples;
  duration_ += record.duration;
  if (totals_.empty()) totals_ = std::vector<StageBreakdown>(record.breakdown.stages.size());
  for (std::size_t i = 0; i < totals_.size(); ++i) {
    const StageBreakdown& stage = record.breakdown.stages[i];
    totals_[i].replica = stage.replica;
    totals_[i].stage = stage.stage;
    totals_[i].idle += stage.idle;
    for (const Phase phase : kTablePhases) totals_[i][phase] += stage[phase];
  }

  ordered_json fields{{"step", record.step},       {"epoch", record.epoch},
                      {"batch", record.batch},     {"batches", record.batches},
                      {"loss", record.stats.loss}, {"samples", record.stats.samples},
                      {"lr", record.lr},           {"step_ms", to_ms(record.duration)}};
  add_breakdown(fields, record.breakdown);
  fields["samples_per_s"] = per_second(static_cast<double>(record.stats.samples), record.duration);
  fields["syncs_per_s"] = sync_bytes_ > 0 ? per_second(1.0, record.duration) : 0.0;
  fields["sync_bytes"] = sync_bytes_;
  fields["net_bytes_per_s"] = 0;  // one process: nothing crosses a network
  fields["stages"] = plan_.stages();
  fields["replicas"] = replicas_;
  fields["frozen_layers"] = 0;  // every layer is trained
  metrics_.write("step", fields);

  if (events_) {
    events_->scalar(record.step, "Loss/train", record.stats.loss);
    events_->scalar(record.step, "lr", record.lr);
    if (record.stats.correct) {
      events_->scalar(record.step, "acc1/train", record.stats.correct->top1_percent());
      events_->scalar(record.step, "acc5/train", record.stats.correct->top5_percent());
    }
  }
  if (progress_is_shown()) {
    show_progress(concat("epoch ", record.epoch + 1, "  step ", record.step, "/", total_steps_, "  loss ",
                         fixed(record.stats.loss, 4), "  ",
                         fixed(per_second(static_cast<double>(samples_), duration_), 0), " samples/s  ETA ",
                         human_duration(seconds_left(record.step))));
  }
  if (to_log) log_step(record);
}

double Reporter::seconds_left(std::int64_t step) const {
  return to_s(duration_) / static_cast<double>(std::max<std::int64_t>(steps_, 1)) *
         static_cast<double>(total_steps_ - step);
}

void Reporter::log_step(const StepRecord& record) const {
  std::ostringstream line;
  line << "epoch = " << record.epoch + 1 << ", batch index = " << record.batch + 1 << "/" << record.batches << ", step "
       << record.step << "/" << total_steps_ << ", loss " << fixed(record.stats.loss, 4) << ", lr "
       << std::setprecision(4) << record.lr << ", "
       << fixed(per_second(static_cast<double>(record.stats.samples), record.duration), 0) << " samples/s, ETA "
       << human_duration(seconds_left(record.step));
  if (!record.breakdown.stages.empty()) {
    const StageBreakdown mean = record.breakdown.mean();
    line << " | step " << fixed(to_ms(record.duration), 1) << " ms =";
    for (const Phase phase : kTablePhases)
      line << " " << profiler::name_of(phase) << " " << fixed(to_ms(mean[phase]), 1) << " +";
    line << " idle " << fixed(to_ms(mean.idle), 1);
  }
  log_info(std::move(line).str());
}

void Reporter::eval(const EvalRecord& record) {
  last_eval_ = record;
  metrics_.write("eval", {{"epoch", record.epoch},
                          {"step", record.step},
                          {"loss", record.counts.loss()},
                          {"top1", record.counts.top1_percent()},
                          {"top5", record.counts.top5_percent()},
                          {"samples", record.counts.samples},
                          {"eval_s", record.seconds}});
  if (events_) {
    events_->scalar(record.step, "Loss/val", record.counts.loss());
    events_->scalar(record.step, "acc1/val", record.counts.top1_percent());
    events_->scalar(record.step, "acc5/val", record.counts.top5_percent());
  }
  log_info(concat("evaluation after step ", record.step, " on ", record.counts.samples, " samples: top-1 ",
                  fixed(record.counts.top1_percent(), 2), " %, top-5 ", fixed(record.counts.top5_percent(), 2),
                  " %, loss ", fixed(record.counts.loss(), 4), " (", fixed(record.seconds, 1), " s)"));
}

ordered_json Reporter::summary(const std::string& outcome, std::int64_t steps_done) {
  show_progress("");
  ordered_json fields{{"outcome", outcome},
                      {"steps", steps_done},
                      {"wall_s", metrics_.time_s()},
                      {"samples_per_s", per_second(static_cast<double>(samples_), duration_)},
                      {"peak_memory_bytes", {{"process", peak_process_memory()}}}};
  if (last_eval_) {
    fields["loss"] = last_eval_->counts.loss();
    fields["top1"] = last_eval_->counts.top1_percent();
    fields["top5"] = last_eval_->counts.top5_percent();
  }
  metrics_.write("summary", fields);
  static_cast<void>(metrics_.sync());
  if (events_) events_->sync();
  log_table();
  return fields;
}

void Reporter::log_table() const {
  if (steps_ == 0 || totals_.empty()) return;
  std::ostringstream table;
  table << "where the time went, mean of " << steps_ << " steps (ms):\n" << std::left << std::setw(18) << "";
  for (const Phase phase : kTablePhases) table << std::right << std::setw(11) << profiler::name_of(phase);
  table << std::setw(11) << "idle" << std::setw(11) << "step";
  const auto mean_ms = [&](Nanoseconds total) { return fixed(to_ms(total) / static_cast<double>(steps_), 2); };
  for (const StageBreakdown& stage : totals_) {
    table << "\n"
          << std::left << std::setw(18) << concat("replica ", index(stage.replica), " stage ", index(stage.stage))
          << std::right;
    for (const Phase phase : kTablePhases) table << std::setw(11) << mean_ms(stage[phase]);
    table << std::setw(11) << mean_ms(stage.idle) << std::setw(11) << mean_ms(duration_);
  }
  log_lines(table.str());
  log_info(concat(samples_, " samples in ", human_duration(to_s(duration_)),
                  " of training steps: ", fixed(per_second(static_cast<double>(samples_), duration_), 1),
                  " samples/s; peak memory of the process ", human_bytes(peak_process_memory())));
}

}  // namespace sluice::train
