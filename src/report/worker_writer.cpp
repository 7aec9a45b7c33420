#include "report/worker_writer.h"

#include <limits>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "report/step_fields.h"
#include "storage/files.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;

fs::path file_of_worker(const fs::path& run_dir, int worker) {
  fs::path folder = workers_dir(run_dir);
  storage::make_directories(folder);
  return folder / concat(worker, ".jsonl");
}

MetricsPosition end_of_file(const fs::path& file) {
  return {.bytes = whole_lines(file, std::numeric_limits<std::uint64_t>::max())};
}

void add_slot(std::vector<profiler::SlotBreakdown>& slots, const profiler::SlotBreakdown& of_step, std::size_t at) {
  if (at == slots.size()) {
    slots.push_back(of_step);
  } else {
    profiler::add(slots[at], of_step);
  }
}

}  // namespace

fs::path workers_dir(const fs::path& run_dir) { return run_dir / "workers"; }

void WorkerPush::add(const StepStats& of_step, const profiler::StepBreakdown& step) {
  const double loss_sum = stats.loss * static_cast<double>(stats.targets);
  ++steps;
  stats.samples += of_step.samples;
  stats.targets += of_step.targets;
  if (stats.targets > 0)
    stats.loss = (loss_sum + of_step.loss * static_cast<double>(of_step.targets)) / static_cast<double>(stats.targets);
  if (of_step.scores) stats.scores = stats.scores.value_or(ScoreSums{}) += *of_step.scores;
  add_to(stats.flops, of_step.flops);
  breakdown.step += step.step;
  breakdown.dropped += step.dropped;
  check(breakdown.slots.empty() || breakdown.slots.size() == step.slots.size(),
        "the same slots in all steps of a push");
  for (std::size_t i = 0; i < step.slots.size(); ++i) add_slot(breakdown.slots, step.slots[i], i);
}

WorkerWriter::WorkerWriter(const fs::path& run_dir, int worker, nlohmann::ordered_json identity)
    : writer_(file_of_worker(run_dir, worker), end_of_file(file_of_worker(run_dir, worker))),
      identity_(std::move(identity)) {}

void WorkerWriter::begin(RunFacts facts, const nlohmann::ordered_json& plan) {
  facts_ = std::move(facts);
  facts_.used_devices.insert(facts_.devices.begin(), facts_.devices.end());
  nlohmann::ordered_json fields = identity_;
  if (!plan.is_null()) fields.update(plan);
  writer_.write("start", fields);
  has_begun_ = true;
}

void WorkerWriter::push(const WorkerPush& push) {
  totals_.add_step(push.stats, push.breakdown, std::nullopt, facts_);
  writer_.write("step", worker_step_fields(push, totals_.steps, facts_));
}

void WorkerWriter::end(const std::string& outcome) {
  nlohmann::ordered_json fields{{"outcome", outcome}, {"pushes", totals_.steps}, {"samples", totals_.samples}};
  fields.update(worker_summary_fields(totals_, facts_));
  writer_.write("summary", fields);
  static_cast<void>(writer_.sync());
}

void WorkerWriter::fail(const Error& error) {
  if (!has_begun_) writer_.write("start", identity_);
  writer_.write(
      "fault",
      {{"step", totals_.steps}, {"what", error.what()}, {"exit_code", static_cast<std::int64_t>(error.exit_code())}});
  static_cast<void>(writer_.sync());
}

}  // namespace sluice::report
