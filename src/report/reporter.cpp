#include "report/reporter.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"
#include "report/step_fields.h"
#include "report/time_table.h"

namespace sluice::report {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kUnsettledSteps = 5;
constexpr Nanoseconds kDrawInterval = 100'000'000;  // between two drawings of the progress line

// The values of a record that an evaluation and an epoch share.
void add_counts(ordered_json& fields, double loss, const EvalCounts& counts, const RunFacts& facts) {
  fields["loss"] = loss;
  if (const auto surprise = perplexity(loss, facts)) fields["perplexity"] = *surprise;
  if (counts.targets == 0) return;
  fields["top1"] = counts.top1_percent();
  fields["top5"] = counts.top5_percent();
}

std::optional<double> network_total(const profiler::NetworkRates* network) {
  return network != nullptr ? std::optional(network->total) : std::nullopt;
}

ordered_json peak_memory(const RunFacts& facts) {
  ordered_json bytes{{"process", peak_process_memory()}};
  for (const device::Device& device : facts.devices) {
    if (const auto peak = device::peak_bytes(device)) bytes[device::to_string(device)] = *peak;
  }
  for (const auto& [kind, size] : facts.memory) bytes[kind] = size;
  return bytes;
}

// What lay on each device when it held most; of CPU devices, where that is counted.
ordered_json peak_memory_by_kind(const RunFacts& facts) {
  ordered_json devices = ordered_json::object();
  for (const device::Device& device : facts.devices) {
    if (device.kind != device::DeviceKind::kCpu || !device::memory_is_counted()) continue;
    const device::MemoryUse use = device::memory_use(device);
    for (const device::MemoryKind kind : device::kMemoryKinds)
      devices[device::to_string(device)][std::string(device::to_word(kind))] = use.by_kind_at_peak[kind];
  }
  return devices;
}

}  // namespace

std::uint64_t peak_process_memory() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

Reporter::Reporter(const storage::RunDir& run_dir, RunFacts facts, bool tensorboard, ReporterStart start)
    : run_dir_(run_dir), facts_(std::move(facts)), metrics_(run_dir.metrics_file(), start.metrics) {
  static_cast<void>(network_.rates());  // the first reading
  if (!tensorboard) return;
  events_ = std::make_unique<EventWriter>(run_dir.tensorboard_dir(), start.first_step);
  // An evaluation that comes again is of a step that does not: TensorBoard forgets both, by number.
  const auto last = start.first_step ? last_event(run_dir.metrics_file(), "step") : std::nullopt;
  if (last && last->value("step", std::int64_t{-1}) == *start.first_step) scalars_of_step(*start.first_step, *last);
}

void Reporter::scalars_of_step(std::int64_t step, const ordered_json& fields) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kTags{
      {{"loss", "Loss/train"}, {"lr", "lr"}, {"top1", "acc1/train"}, {"top5", "acc5/train"}}};
  for (const auto& [name, tag] : kTags) {
    const auto field = fields.find(name);
    if (field != fields.end() && field->is_number()) events_->scalar(step, tag, field->get<double>());
  }
}

std::optional<std::filesystem::path> Reporter::missing() const {
  if (run_dir_.presence() != storage::RunDir::Presence::kThere) return run_dir_.path();
  return metrics_.is_linked() ? std::nullopt : std::optional(run_dir_.metrics_file());
}

void Reporter::plan(const ordered_json& description) {
  metrics_.write("plan", description);
  if (events_) events_->text(0, "plan", concat("```json\n", description.dump(2), "\n```"));
}

void Reporter::event(const std::string& name, const ordered_json& fields) { metrics_.write(name, fields); }

MetricsPosition Reporter::sync() { return metrics_.sync(); }

void Reporter::step(const StepRecord& record, bool to_log) {
  const profiler::NetworkRates& rates = network_.rates();
  const profiler::NetworkRates* network = network_.is_known() ? &rates : nullptr;
  totals_.add_step(record.stats, record.breakdown, network_total(network));
  if (totals_.steps > kUnsettledSteps) settled_.add_step(record.stats, record.breakdown, network_total(network));
  const ordered_json fields = fields_of(record, network);
  metrics_.write("step", fields);
  if (record.breakdown.dropped > 0 && totals_.dropped_spans == record.breakdown.dropped)
    log_warning("a step has more spans than are kept: its breakdown is incomplete (spans_dropped in metrics.jsonl)");
  if (events_) scalars_of_step(record.step, fields);
  interval_.add(record);
  add_to_epoch(record);
  draw_progress(record);
  if (to_log) log_step(record, network);
  if (epoch_is_over_ && !record.evaluation_follows) end_epoch(nullptr);
}

void Reporter::draw_progress(const StepRecord& record) {
  if (!progress_is_shown() || now_ns() - last_drawn_ < kDrawInterval) return;
  const double rate = rate_of(interval_, facts_);
  show_progress(progress_text(record, facts_, rate, seconds_left(record.step)));
  last_drawn_ = now_ns();
}

void Reporter::add_to_epoch(const StepRecord& record) {
  if (last_step_ && last_step_->epoch != record.epoch) epoch_ = {};
  epoch_.add(record);
  last_step_ = record;
  epoch_is_over_ = record.batch + 1 == record.batches || record.step == facts_.total_steps;
}

void Reporter::end_epoch(const EvalRecord* evaluation) {
  epoch_is_over_ = false;
  ordered_json fields{
      {"epoch", last_step_->epoch}, {"step", last_step_->step}, {"steps", epoch_.steps}, {"samples", epoch_.samples}};
  add_counts(fields, epoch_.loss(), epoch_.correct, facts_);
  fields["train_s"] = to_s(epoch_.duration);
  metrics_.write("epoch", fields);
  log_info(epoch_line(epoch_, *last_step_, evaluation, facts_));
}

ordered_json Reporter::fields_of(const StepRecord& record, const profiler::NetworkRates* network) const {
  ordered_json fields{{"step", record.step},       {"epoch", record.epoch},
                      {"batch", record.batch},     {"batches", record.batches},
                      {"loss", record.stats.loss}, {"samples", record.stats.samples},
                      {"lr", record.lr},           {"step_ms", to_ms(record.breakdown.step)}};
  if (record.stats.correct) {
    fields["top1"] = record.stats.correct->top1_percent();
    fields["top5"] = record.stats.correct->top5_percent();
  }
  add_breakdown(fields, record.breakdown);
  fields["samples_per_s"] = per_second(static_cast<double>(record.stats.samples), record.breakdown.step);
  fields["syncs_per_s"] = facts_.sync_bytes > 0 ? per_second(1.0, record.breakdown.step) : 0.0;
  fields["sync_bytes"] = facts_.sync_bytes;
  fields["net_bytes_per_s"] = network != nullptr ? ordered_json(network->total) : ordered_json(nullptr);
  for (const auto& [name, rate] : network != nullptr ? network->interfaces : decltype(network->interfaces){}) {
    if (rate.sent + rate.received > 0) fields["net"][name] = {{"sent", rate.sent}, {"received", rate.received}};
  }
  if (record.stats.gradient_norm) fields["gradient_norm"] = *record.stats.gradient_norm;
  add_flops(fields, record.stats.flops, record.breakdown.step, facts_);
  fields["stages"] = facts_.plan.devices();
  fields["replicas"] = facts_.replicas;
  fields["frozen_layers"] = 0;  // every layer is trained
  return fields;
}

double Reporter::seconds_left(std::int64_t step) const {
  return to_s(totals_.duration) / static_cast<double>(std::max<std::int64_t>(totals_.steps, 1)) *
         static_cast<double>(facts_.total_steps - step);
}

void Reporter::log_step(const StepRecord& record, const profiler::NetworkRates* network) {
  if (facts_.logs_full_lines) log_lines(full_lines(record, facts_, network_total(network)));
  log_fields(interval_line(interval_, record, facts_, seconds_left(record.step)));
  interval_ = {};
}

void Reporter::outside_of_steps(const std::vector<Span>& spans) { totals_.add_outside(spans); }

void Reporter::eval(const EvalRecord& record) {
  last_eval_ = record;
  ordered_json fields{{"epoch", record.epoch}, {"step", record.step}};
  add_counts(fields, record.counts.loss(), record.counts, facts_);
  fields["samples"] = record.counts.targets;
  fields["eval_s"] = record.seconds;
  metrics_.write("eval", fields);
  if (events_) {
    events_->scalar(record.step, "Loss/val", record.counts.loss());
    events_->scalar(record.step, "acc1/val", record.counts.top1_percent());
    events_->scalar(record.step, "acc5/val", record.counts.top5_percent());
  }
  if (epoch_is_over_) {
    end_epoch(&record);
  } else {
    log_info(evaluation_line(record, facts_));
  }
}

ordered_json Reporter::summary(const std::string& outcome, std::int64_t steps_done) {
  show_progress("");
  if (epoch_is_over_) end_epoch(nullptr);  // its evaluation was cut off
  ordered_json fields{{"outcome", outcome},
                      {"steps", steps_done},
                      {"wall_s", metrics_.time_s()},
                      {"samples_per_s", totals_.samples_per_s()},
                      {"peak_memory_bytes", peak_memory(facts_)},
                      {"peak_memory_by_kind", peak_memory_by_kind(facts_)}};
  add_flops(fields, totals_.flops, totals_.duration, facts_);
  fields["breakdown"] = mean_breakdown(totals_);
  std::vector<tune::Advice> advice;
  fields["advice"] = nullptr;  // not known
  if (!totals_.places.empty()) {
    advice = tune::advise(advice_input(settled_.steps >= kUnsettledSteps ? settled_ : totals_, facts_));
    fields["advice"] = ordered_json::array();
    for (const tune::Advice& one : advice) fields["advice"].push_back(one.sentence);
  }
  if (!totals_.places.empty()) {
    fields["evaluation_s"] = to_s(totals_.evaluation);
    fields["checkpoints_s"] = to_s(totals_.checkpoints);
  }
  if (last_eval_) add_counts(fields, last_eval_->counts.loss(), last_eval_->counts, facts_);
  metrics_.write("summary", fields);
  static_cast<void>(metrics_.sync());
  if (events_) events_->sync();
  log_end(advice);
  const double rate =
      rate_of({.samples = totals_.samples, .targets = totals_.targets, .duration = totals_.duration}, facts_);
  log_result(result_line({outcome, steps_done, metrics_.time_s(), run_dir_.path().string()},
                         last_step_ ? std::optional(epoch_.loss()) : std::nullopt, last_eval_, rate, facts_));
  return fields;
}

void Reporter::log_end(const std::vector<tune::Advice>& advice) const {
  if (totals_.steps == 0) return;
  if (!totals_.places.empty()) log_table(time_table(mean_times(totals_), {}, totals_.steps, facts_.processes));
  if (totals_.evaluation + totals_.checkpoints > 0) {
    log_info(concat("between the steps: evaluation ", human_duration(to_s(totals_.evaluation)), ", checkpoints ",
                    human_duration(to_s(totals_.checkpoints))));
  }
  const double flops_per_s = per_second(all_flops(totals_.flops), totals_.duration);
  const auto utilisation = facts_.utilisation(flops_per_s);
  log_info(concat(totals_.samples, " samples in ", human_duration(to_s(totals_.duration)), " of training steps: ",
                  fixed(totals_.samples_per_s(), 1), " samples/s; ", fixed(flops_per_s * 1e-9, 1), " model GFLOP/s, ",
                  utilisation ? concat(fixed(100 * *utilisation, 1), " % of ", concat(facts_.peak_flops * 1e-12),
                                       " TFLOP/s a device")
                              : std::string("peak unknown (profile.peak_tflops)"),
                  "; peak memory of the process ", human_bytes(peak_process_memory())));
  for (const tune::Advice& one : advice) log_info(concat("advice: ", one.sentence));
}

}  // namespace sluice::report
