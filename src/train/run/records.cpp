#include "train/run/records.h"

#include <algorithm>
#include <array>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "train/plan/plan_changes.h"
#include "train/plan/plan_description.h"

namespace sluice::train {

void EpochLog::step(const report::StepRecord& record, const RecordedStep& step, bool is_last) {
  if (last_ != nullptr) {
    last_->step = record;
    last_->spans = step.spans;
  }
  epoch_.add(record);
  if (record.batch + 1 < record.batches && !is_last) return;
  log_info(process_, ": epoch ", record.epoch + 1, " trained, step ", record.step, " of ", total_steps_, ", loss ",
           fixed(epoch_.loss(), 4));
  epoch_ = {};
}

void EpochLog::finish(std::int64_t steps_done) const {
  log_info(process_, ": done after step ", steps_done, " of ", total_steps_);
}

void KeptRecords::note(const std::string& line) const { log_info(line); }

void KeptRecords::event(const std::string& name, const nlohmann::ordered_json& fields) const {
  parts_.reporter.event(name, fields);
}

void KeptRecords::fault(std::int64_t steps_done, const Error& error) const {
  const std::string what = error.exit_code() == ExitCode::kPeer ? parts_.explain(error).what() : error.what();
  event("fault", {{"step", steps_done}, {"what", what}});
}

void KeptRecords::step(const report::StepRecord& record, const RecordedStep& step, bool is_last) {
  for (const auto& [name, fields] : step.events) event(name, fields);
  parts_.reporter.step(record, step.spans, record.step % parts_.log_every == 0 || is_last);
}

void KeptRecords::plan_changed(const PlanTransition& transition) const {
  const auto& [steps_done, before, now, seconds, freeze] = transition;
  nlohmann::ordered_json fields{
      {"step", steps_done}, {"from", plan_json(before)}, {"to", plan_json(now)}, {"seconds", seconds}};
  if (const auto measured = parts_.reporter.step_ms_of_plan()) fields["measured_before_ms"] = *measured;
  std::string freezing;
  if (!freeze.is_null()) {
    freezing = concat(describe_freezing(freeze.at("epoch"), freeze.at("units"), freeze.at("of_units")), ": ");
    for (const char* predicted : {"predicted_before_ms", "predicted_ms"})
      if (freeze.contains(predicted)) fields[predicted] = freeze.at(predicted);
  }
  log_info("after step ", steps_done, ": ", freezing, in_words(now), "; before: ", in_words(before), "; changed in ",
           fixed(seconds, 3), " s");
  event("transition", fields);
  report_plan(steps_done);
}

report::SinkChoice sinks_of(const Setup& setup) {
  const config::Config& config = setup.config;
  // TensorBoard compares runs by the keys that affect learning, not by where they ran.
  constexpr std::array kTables{"model.", "data.", "train.", "pipeline.", "replicas.", "freeze."};
  report::SinkChoice choice{
      .tensorboard = config.log.tensorboard, .csv = config.log.csv, .scores = setup.task->scores()};
  for (const auto& [key, text] : config::values(config)) {
    if (std::ranges::any_of(kTables, [&](const char* table) { return key.starts_with(table); }))
      choice.settings.emplace_back(key, text);
  }
  return choice;
}

}  // namespace sluice::train
