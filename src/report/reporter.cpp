#include "report/reporter.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "report/console_sink.h"
#include "report/csv_sink.h"
#include "report/record_lines.h"
#include "report/step_fields.h"
#include "report/tensorboard_sink.h"

namespace sluice::report {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kUnsettledSteps = 5;

}  // namespace

Reporter::Reporter(const storage::RunDir& run_dir, const SinkChoice& choice, const ReporterStart& start)
    : run_dir_(run_dir) {
  static_cast<void>(network_.rates());  // the first reading is the reference
  auto metrics = std::make_unique<MetricsSink>(run_dir.metrics_file(), start.metrics);
  metrics_ = metrics.get();
  sinks_.push_back(std::move(metrics));
  if (choice.tensorboard) {
    sinks_.push_back(std::make_unique<TensorBoardSink>(run_dir.tensorboard_dir(), run_dir.metrics_file(),
                                                       start.first_step, choice.settings, choice.scores));
  }
  if (choice.csv)
    sinks_.push_back(std::make_unique<CsvSink>(run_dir.csv_file(), run_dir.metrics_file(), choice.scores));
  sinks_.push_back(std::make_unique<ConsoleSink>(run_dir.path().string()));
}

std::optional<std::filesystem::path> Reporter::missing() const {
  if (run_dir_.presence() != storage::RunDir::Presence::kThere) return run_dir_.path();
  return metrics_->is_linked() ? std::nullopt : std::optional(run_dir_.metrics_file());
}

void Reporter::plan(RunFacts facts, const ordered_json& description, std::int64_t steps_done) {
  facts.used_devices = facts_.used_devices;
  facts.used_devices.insert(facts.devices.begin(), facts.devices.end());
  for (const auto& [kind, bytes] : facts_.memory) facts.memory[kind] = std::max(facts.memory[kind], bytes);
  facts_ = std::move(facts);
  of_plan_ = settled_ = {};
  stages_of_plan_ = settled_stages_ = {};
  prediction_.reset();
  ++plans_;
  for (const auto& sink : sinks_) sink->plan(facts_, description, steps_done);
}

std::optional<double> Reporter::step_ms_of_plan() const {
  const RunTotals& totals = is_settled() ? settled_ : of_plan_;
  if (totals.steps == 0) return std::nullopt;
  return to_ms(totals.duration) / static_cast<double>(totals.steps);
}

void Reporter::prediction(const Prediction& prediction) {
  prediction_ = prediction;
  event("prediction",
        {{"step_ms", prediction.step_s * 1e3}, {"by", prediction.by}, {"device_bytes", prediction.device_bytes}});
}

void Reporter::event(const std::string& name, const ordered_json& fields) {
  for (const auto& sink : sinks_) sink->event(name, fields);
}

// Syncs the other sinks as well, because a run resumed from the checkpoint does not repeat earlier points.
MetricsPosition Reporter::sync() {
  const MetricsPosition position = metrics_->sync_position();
  for (const auto& sink : sinks_) sink->sync();
  return position;
}

void Reporter::step(const StepRecord& record, const StepSpans& spans, bool ends_interval) {
  const profiler::NetworkRates& rates = network_.rates();
  const profiler::NetworkRates* network = network_.is_known() ? &rates : nullptr;
  const auto bytes_per_s = network != nullptr ? std::optional(network->total) : std::nullopt;
  totals_.add_step(record.stats, record.breakdown, bytes_per_s, facts_);
  of_plan_.add_step(record.stats, record.breakdown, bytes_per_s, facts_);
  stages_of_plan_.add(spans);
  if (of_plan_.steps > kUnsettledSteps) {
    settled_.add_step(record.stats, record.breakdown, bytes_per_s, facts_);
    settled_stages_.add(spans);
  }
  if (record.noise) {
    totals_.norms += record.noise->duration;
    totals_.noise = record.noise->mean;
  }
  add_to_epoch(record);
  const ordered_json fields = step_fields(record, network, facts_);
  const StepReport report{record, spans, fields, network, time_left(record), ends_interval};
  for (const auto& sink : sinks_) sink->step(report);
  if (record.evaluation_follows && !peaks_of_steps_) peaks_of_steps_ = peak_memory(facts_);
  if (epoch_is_over_ && !record.evaluation_follows) end_epoch(nullptr);
}

void Reporter::add_to_epoch(const StepRecord& record) {
  if (last_step_ && last_step_->epoch != record.epoch) epoch_ = {};
  epoch_.add(record);
  last_step_ = record;
  epoch_is_over_ = record.batch + 1 == record.batches || record.step == facts_.total_steps;
}

void Reporter::end_epoch(const EvalRecord* evaluation) {
  epoch_is_over_ = false;
  const ordered_json fields = epoch_fields(epoch_, *last_step_, facts_);
  for (const auto& sink : sinks_) sink->epoch({epoch_, *last_step_, evaluation, fields});
}

TimeLeft Reporter::time_left(const StepRecord& record) const {
  const RemainingWork& remaining = record.remaining;
  const double step_s = (is_settled() ? settled_ : of_plan_).seconds_a_step();
  const double checkpoint_s = totals_.seconds_a_checkpoint();
  double seconds = step_s * static_cast<double>(facts_.total_steps - record.step) +
                   totals_.seconds_an_evaluation() * static_cast<double>(remaining.evaluations);
  if (remaining.checkpoint_interval_s > 0)
    seconds += checkpoint_s * std::floor(seconds / remaining.checkpoint_interval_s);
  return {.seconds = seconds + checkpoint_s * static_cast<double>(remaining.checkpoints),
          .lacks_evaluations = remaining.evaluations > 0 && totals_.evaluations_made == 0};
}

void Reporter::outside_of_steps(const std::vector<Span>& spans) { totals_.add_outside(spans); }

void Reporter::eval(const EvalRecord& record) {
  last_eval_ = record;
  if (!last_step_) evaluated_first_ = true;
  const ordered_json fields = eval_fields(record, facts_);
  for (const auto& sink : sinks_) sink->eval(record, fields, epoch_is_over_);
  if (epoch_is_over_) end_epoch(&record);
}

ordered_json Reporter::predicted_fields(const ordered_json& peaks) const {
  const RunTotals& totals = is_settled() ? settled_ : of_plan_;
  const StageTimes& stages = is_settled() ? settled_stages_ : stages_of_plan_;
  MeasuredRun measured{.step_ms = step_ms_of_plan(),
                       .by_stages_ms = {},
                       .device_bytes = plans_ > 1 || evaluated_first_ ? ordered_json() : peaks};
  if (const auto seconds = facts_.by_pushes ? std::nullopt : stages.step_s(facts_.plan, totals.slots))
    measured.by_stages_ms = *seconds * 1e3;
  return prediction_fields(prediction_, measured);
}

// From the records, because another process may have kept the earlier ones.
Goodput Reporter::goodput_so_far() const {
  Goodput goodput;
  try {
    const auto add = [&](const ordered_json& line, const std::string& event) { goodput.add(line, event); };
    static_cast<void>(read_records(run_dir_.metrics_file(), add, whole_lines_of(run_dir_.metrics_file())));
  } catch (const Error& error) {
    log_warning("the goodput is unknown: ", error.what());
    return {};
  }
  return goodput;
}

ordered_json Reporter::summary(const std::string& outcome, std::int64_t steps_done) {
  if (epoch_is_over_) end_epoch(nullptr);
  const double wall_s = metrics_->time_s();
  std::vector<tune::Advice> advice;
  const bool is_known = !of_plan_.slots.empty();
  const RunTotals& advised = settled_.steps >= kUnsettledSteps ? settled_ : of_plan_;
  if (is_known) advice = tune::advise(advice_input(advised, facts_));
  ordered_json fields{{"outcome", outcome}, {"steps", steps_done}, {"wall_s", wall_s}};
  if (const auto of_plan = step_ms_of_plan()) fields["step_ms_of_last_plan"] = *of_plan;
  if (is_known) fields["breakdown_of_last_plan"] = mean_breakdown(of_plan_.slots);
  fields.update(summary_fields(totals_, is_known ? &advice : nullptr, last_eval_, facts_));
  if (is_known) fields["advice_steps"] = advised.steps;
  fields["predicted"] = predicted_fields(peaks_of_steps_.value_or(fields["peak_memory_bytes"]));
  const Goodput goodput = goodput_so_far();
  fields.update(goodput.json());
  const auto train_loss = last_step_ ? std::optional(epoch_.loss()) : std::nullopt;
  for (const auto& sink : sinks_)
    sink->summary(
        {outcome, steps_done, wall_s, totals_, goodput, advice, advised.steps, train_loss, last_eval_, fields});
  static_cast<void>(sync());
  return fields;
}

}  // namespace sluice::report
