// worker_writer: workers/N.jsonl in a run directory: `start` at each start of parameter-server worker N, a `step` per
// push with its time parts, and finally `summary` or `fault`. A restarted worker continues its file. Lines are those of
// metrics_writer.h, but time_s counts from the latest `start`. Threads: one. Errors: StorageError if the file cannot be
// opened; later a full disk drops lines with a warning.
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

struct WorkerPush {
  std::int64_t version = 0;  // version of the weights at the start
  std::int64_t epoch = 0;
  std::int64_t steps = 0;    // local steps per push, usually one
  std::optional<double> lr;  // learning rate of local steps; null if only the server updates
  StepStats stats;
  profiler::StepBreakdown breakdown;
  Nanoseconds waited = 0;   // waiting for samples and weights
  Nanoseconds stalled = 0;  // delay by ps.induce; like `waited`, part of the breakdown's idle time

  void add(const StepStats& of_step, const profiler::StepBreakdown& step);
};

class WorkerWriter {
 public:
  // identity: fields of `start` that identify the worker; also written with a `fault` before begin().
  WorkerWriter(const std::filesystem::path& run_dir, int worker, nlohmann::ordered_json identity);

  // Writes `start`; call before the first push. plan: fields that describe how steps are run.
  void begin(RunFacts facts, const nlohmann::ordered_json& plan);
  void push(const WorkerPush& push);
  // Writes the last line: end() or fail(). outcome: "done" or "interrupted".
  void end(const std::string& outcome);
  void fail(const Error& error);

 private:
  MetricsWriter writer_;
  nlohmann::ordered_json identity_;
  RunFacts facts_;
  RunTotals totals_;
  bool has_begun_ = false;
};

}  // namespace sluice::report
