// step_fields: fields of records in metrics.jsonl (docs/reference/files.md). Pure, except for readings of peak memory.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/breakdown.h"
#include "profiler/network.h"
#include "report/run_totals.h"
#include "report/step_record.h"

namespace sluice::report {

struct WorkerPush;

[[nodiscard]] nlohmann::ordered_json peak_memory(const RunFacts& facts);

// Milliseconds by field in record order: the columns that add up to the step, and parts of them.
[[nodiscard]] std::vector<std::pair<std::string, double>> times_of(const profiler::SlotBreakdown& slot);

// Fields of `step`; its times are null if nothing was recorded (profile.level = "off"). network: null if unknown.
[[nodiscard]] nlohmann::ordered_json step_fields(const StepRecord& record, const profiler::NetworkRates* network,
                                                 const RunFacts& facts);

// Fields of a worker's `step`. number: of the push since this start (worker_writer.h).
[[nodiscard]] nlohmann::ordered_json worker_step_fields(const WorkerPush& push, std::int64_t number,
                                                        const RunFacts& facts);

[[nodiscard]] nlohmann::ordered_json epoch_fields(const StepSums& sums, const StepRecord& last, const RunFacts& facts);

[[nodiscard]] nlohmann::ordered_json eval_fields(const EvalRecord& record, const RunFacts& facts);

// Fields of `summary` from the run's totals. advice: null if unknown.
[[nodiscard]] nlohmann::ordered_json summary_fields(const RunTotals& totals, const std::vector<tune::Advice>* advice,
                                                    const std::optional<EvalRecord>& evaluation, const RunFacts& facts);
[[nodiscard]] nlohmann::ordered_json worker_summary_fields(const RunTotals& totals, const RunFacts& facts);

}  // namespace sluice::report
