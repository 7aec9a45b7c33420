// worker_writer: workers/N.jsonl in a run directory, where worker N of a parameter server, a process of its own, tells
// of itself: `start` each time that it begins, a `step` for each of its pushes with where its time went, and at its end
// `summary` or `fault`. A worker that comes back goes on in the same file; others have files of their own, so workers,
// and their server, may share a directory. Not here: what the server knows of its workers (metrics.jsonl), what a step
// is (train/serve/worker.h).
// Lines are those of metrics_writer.h, but time_s counts from the latest `start`. Threads: one. Errors: StorageError
// when the file cannot be opened; a disk that fills up later drops lines with a warning.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "profiler/breakdown.h"
#include "report/metrics_writer.h"
#include "report/run_totals.h"

namespace sluice::report {

[[nodiscard]] std::filesystem::path workers_dir(const std::filesystem::path& run_dir);

// What a worker has done between taking samples and handing over its push.
struct WorkerPush {
  std::int64_t version = 0;  // of the weights that it began with
  std::int64_t epoch = 0;    // of its samples, from 0
  std::int64_t steps = 0;    // one, or as many as a worker makes of its own between two pushes
  std::optional<double> lr;  // rate of the worker's own steps; null if the server alone updates
  StepStats stats;           // of all of them
  profiler::StepBreakdown breakdown;
  Nanoseconds waited = 0;   // for samples and weights
  Nanoseconds stalled = 0;  // as ps.induce asks for; both are part of the breakdown's idle time

  // One of the steps; the same slots in each.
  void add(const StepStats& of_step, const profiler::StepBreakdown& step);
};

class WorkerWriter {
 public:
  // identity: fields of `start` by which the worker is known; they name it in a `fault` before begin(), too.
  WorkerWriter(const std::filesystem::path& run_dir, int worker, nlohmann::ordered_json identity);

  // Writes `start`. plan: the fields that say how it runs its steps. Before the first push.
  void begin(RunFacts facts, const nlohmann::ordered_json& plan);
  void push(const WorkerPush& push);
  // The last line is one of these two. outcome: "done", "interrupted".
  void end(const std::string& outcome);
  void fail(const Error& error);

 private:
  MetricsWriter writer_;
  nlohmann::ordered_json identity_;
  RunFacts facts_;
  RunTotals totals_;  // a push counts as a step
  bool has_begun_ = false;
};

}  // namespace sluice::report
