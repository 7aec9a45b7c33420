// step_fields: the numbers of a run's records as metrics.jsonl names them (docs/files.md). Pure, but for the summary's
// memory, which is read when it is asked for.
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

// Bytes: of the process, of each device (the most that it has held so far), and by kind.
[[nodiscard]] nlohmann::ordered_json peak_memory(const RunFacts& facts);

// Milliseconds by field, in the order of the records: the columns that add up to the step, and parts of them.
[[nodiscard]] std::vector<std::pair<std::string, double>> times_of(const profiler::SlotBreakdown& slot);

// Of `step`; its times are null where nothing was recorded (profile.level = "off"). network: null where not known.
[[nodiscard]] nlohmann::ordered_json step_fields(const StepRecord& record, const profiler::NetworkRates* network,
                                                 const RunFacts& facts);

// Of a worker's `step`: a push, its number so many of this start (worker_writer.h).
[[nodiscard]] nlohmann::ordered_json worker_step_fields(const WorkerPush& push, std::int64_t number,
                                                        const RunFacts& facts);

// Of `epoch`: the training steps that this process has run of it.
[[nodiscard]] nlohmann::ordered_json epoch_fields(const StepSums& sums, const StepRecord& last, const RunFacts& facts);

// Of `eval`.
[[nodiscard]] nlohmann::ordered_json eval_fields(const EvalRecord& record, const RunFacts& facts);

// Of `summary`, what the run's totals say. advice: null where it is not known.
[[nodiscard]] nlohmann::ordered_json summary_fields(const RunTotals& totals, const std::vector<tune::Advice>* advice,
                                                    const std::optional<EvalRecord>& evaluation, const RunFacts& facts);
// Of a worker's `summary`.
[[nodiscard]] nlohmann::ordered_json worker_summary_fields(const RunTotals& totals, const RunFacts& facts);

}  // namespace sluice::report
