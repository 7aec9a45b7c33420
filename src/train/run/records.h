// records: what a run leaves behind besides its weights. Rank 0 keeps records and checkpoints (KeptRecords); the other
// processes log their epochs (EpochLog). Threads: one. Errors: those of report/reporter.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/plan.h"
#include "report/reporter.h"
#include "storage/checkpoint_store.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"
#include "train/trace/recorded_step.h"
#include "train/trace/step_observer.h"

namespace sluice::train {

class KeptRecords;

struct PlanTransition {
  std::int64_t steps_done = 0;
  Plan before, now;
  double seconds = 0;
  nlohmann::ordered_json freeze;  // PlanSource::freeze_record; null if nothing freezes
};

class Records {
 public:
  Records() = default;
  virtual ~Records() = default;
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  [[nodiscard]] virtual const KeptRecords* kept() const { return nullptr; }
  virtual void note(const std::string& /*line*/) const {}  // logs it
  virtual void event(const std::string& /*name*/, const nlohmann::ordered_json& /*fields*/) const {}
  virtual void fault(std::int64_t /*steps_done*/, const Error& /*error*/) const {}
  virtual void step(const report::StepRecord& record, const RecordedStep& step, bool is_last) = 0;
  virtual void evaluation(const report::EvalRecord& /*record*/) const {}
  virtual void plan_changed(const PlanTransition& /*transition*/) const {}
  virtual void outside_of_steps(const std::vector<Span>& /*spans*/) const {}
  virtual void observed(StepObserver& /*observer*/) const {}
  virtual void finish(std::int64_t /*steps_done*/) const {}
  // A file that was removed or replaced while the run wrote to it.
  [[nodiscard]] virtual std::optional<std::filesystem::path> missing() const { return std::nullopt; }
};

// The newest records of a process without a run directory, which keeps them if rank 0 is lost.
struct LastRecords {
  std::optional<report::StepRecord> step;
  StepSpans spans;
  std::optional<report::EvalRecord> evaluation;
};

class EpochLog final : public Records {
 public:
  // last: null if they are not wanted.
  EpochLog(std::string process, std::int64_t total_steps, LastRecords* last = nullptr)
      : process_(std::move(process)), total_steps_(total_steps), last_(last) {}

  void evaluation(const report::EvalRecord& record) const override {
    if (last_ != nullptr) last_->evaluation = record;
  }
  void step(const report::StepRecord& record, const RecordedStep& step, bool is_last) override;
  void finish(std::int64_t steps_done) const override;

 private:
  std::string process_;
  std::int64_t total_steps_;
  report::StepSums epoch_;
  LastRecords* last_;
};

class KeptRecords final : public Records {
 public:
  struct Parts {
    report::Reporter& reporter;
    storage::CheckpointStore& checkpoints;
    std::int64_t log_every = 10;
    std::function<storage::CheckpointContents(const Progress&)> capture;  // all state for a resume
    std::function<void(std::int64_t steps_done)> report_plan;
    std::function<Error(const Error&)> explain;  // finds the cause of a communication failure
  };
  explicit KeptRecords(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] const KeptRecords* kept() const override { return this; }
  [[nodiscard]] report::Reporter& reporter() const { return parts_.reporter; }
  [[nodiscard]] storage::CheckpointStore& checkpoints() const { return parts_.checkpoints; }
  [[nodiscard]] storage::CheckpointContents capture(const Progress& progress) const { return parts_.capture(progress); }
  void report_plan(std::int64_t steps_done) const { parts_.report_plan(steps_done); }

  void note(const std::string& line) const override;
  void event(const std::string& name, const nlohmann::ordered_json& fields) const override;
  void fault(std::int64_t steps_done, const Error& error) const override;
  void step(const report::StepRecord& record, const RecordedStep& step, bool is_last) override;
  void evaluation(const report::EvalRecord& record) const override { parts_.reporter.eval(record); }
  void plan_changed(const PlanTransition& transition) const override;
  void outside_of_steps(const std::vector<Span>& spans) const override { parts_.reporter.outside_of_steps(spans); }
  void observed(StepObserver& observer) const override { observer.report(&parts_.reporter); }
  [[nodiscard]] std::optional<std::filesystem::path> missing() const override { return parts_.reporter.missing(); }

 private:
  Parts parts_;
};

// The records that a configuration asks for besides metrics.jsonl.
[[nodiscard]] report::SinkChoice sinks_of(const Setup& setup);

}  // namespace sluice::train
