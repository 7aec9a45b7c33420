#include "train/run_totals.h"

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"

namespace sluice::train {

using profiler::Part;
using profiler::StageBreakdown;

void RunTotals::add_step(std::int64_t samples_of_step, double flops_of_step, const profiler::StepBreakdown& breakdown) {
  ++steps;
  samples += samples_of_step;
  duration += breakdown.step;
  flops += flops_of_step;
  is_complete = is_complete && breakdown.is_complete;
  if (breakdown.last_rank >= 0) waited_for_rank[breakdown.last_rank] += breakdown.waited_for_last;
  if (stages.empty()) stages.resize(breakdown.stages.size());
  for (std::size_t i = 0; i < breakdown.stages.size(); ++i) {
    stages[i].replica = breakdown.stages[i].replica;
    stages[i].stage = breakdown.stages[i].stage;
    profiler::add(stages[i], breakdown.stages[i]);
  }
}

void RunTotals::add_outside(const std::vector<Span>& spans) {
  for (const Span& span : spans) {
    if (span.phase == Phase::kEvaluation) evaluation += span.end - span.begin;
    if (span.phase == Phase::kCheckpoint) checkpoints += span.end - span.begin;
  }
}

profiler::AdviceInput advice_input(const RunTotals& totals, const RunFacts& facts, double network_bytes_per_s) {
  const auto mean = [&](Nanoseconds total) {
    return to_s(total) / static_cast<double>(std::max<std::int64_t>(totals.steps, 1));
  };
  profiler::AdviceInput input{.step = mean(totals.duration),
                              .chunks = facts.plan.chunks,
                              .replica_samples = static_cast<double>(facts.plan.global_batch) / facts.replicas,
                              .partition = facts.plan.partition.layers_per_stage,
                              .sync_bytes = static_cast<double>(facts.sync_bytes()),
                              .network_bytes_per_s = network_bytes_per_s,
                              .data_workers = facts.data_workers};
  for (const StageBreakdown& stage : totals.stages) {
    input.stages.push_back({.replica = index(stage.replica),
                            .stage = index(stage.stage),
                            .compute = mean(stage.forward() + stage.backward()),
                            .load = mean(stage.load()),
                            .allreduce = mean(stage[Part::kAllReduce]),
                            .skew = mean(stage[Part::kSkew]),
                            .fill = mean(stage[Part::kFill]),
                            .steady = mean(stage[Part::kSteady]),
                            .drain = mean(stage[Part::kDrain]),
                            .transfer = mean(stage.transfer()),
                            .other = mean(stage[Part::kOther])});
    input.allreduce = std::max(input.allreduce, mean(stage.all_reduce));
  }
  for (const auto& [rank, waited] : totals.waited_for_rank) {
    if (!input.late_rank || mean(waited) > input.late_rank->late) input.late_rank = {rank, mean(waited)};
  }
  return input;
}

std::string table_of(const RunTotals& totals) {
  std::vector<TextRow> rows{{"", "load", "forward", "backward", "transfer", "allreduce", "skew", "optimizer", "bubble",
                             "other", "step", "busy"}};
  for (const StageBreakdown& stage : totals.stages) {
    TextRow& row = rows.emplace_back(TextRow{concat("replica ", index(stage.replica), " stage ", index(stage.stage))});
    for (const Nanoseconds time :
         {stage.load(), stage.forward(), stage.backward(), stage.transfer(), stage[Part::kAllReduce],
          stage[Part::kSkew], stage.optimizer(), stage.bubble(), stage[Part::kOther], totals.duration}) {
      row.push_back(fixed(totals.mean_ms(time), 2));
    }
    row.push_back(concat(fixed(100 * to_s(stage.compute()) / to_s(totals.duration), 1), " %"));
  }
  std::string text = concat("where the time went, mean of ", counted(totals.steps, "step"),
                            " (ms; allreduce: exposed; skew: waiting for the slowest to get there):\n",
                            text_table(rows, std::array{Align::kLeft, Align::kRight}));
  if (totals.evaluation + totals.checkpoints > 0) {
    text += concat("\nbetween the steps: evaluation ", human_duration(to_s(totals.evaluation)), ", checkpoints ",
                   human_duration(to_s(totals.checkpoints)));
  }
  if (!totals.is_complete) text += "\nincomplete: more spans were recorded in a step than are kept";
  return text;
}

}  // namespace sluice::train
