#include "train/study/memory_proof.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"
#include "report/record_lines.h"
#include "storage/scratch_folder.h"
#include "train/plan/plan_settings.h"
#include "train/plan/what_if.h"
#include "train/study/child.h"
#include "train/study/measured_plan.h"

namespace sluice::train {
namespace {

bool counts_memory(const profiler::LayerProfile& profile) {
  const auto takes_memory = [](const profiler::MeasuredLayer& layer) {
    return layer.cost.working.forward != AffineBytes{};
  };
  const auto has_sizes = [](const profiler::MeasuredLayer& layer) { return !layer.bytes.empty(); };
  return std::ranges::any_of(profile.layers, takes_memory) && std::ranges::all_of(profile.layers, has_sizes);
}

using tune::MemoryCell;
using tune::MemoryQuestion;

constexpr double kLeastProof_s = 5;        // minimum to begin another run
constexpr std::uint64_t kMostTenths = 15;  // of the limit: largest expected need that is tried

// Two steps: the second one has all that the first one left.
config::Config proof_config(config::Config config, const MemoryQuestion& question, const MemoryCell& cell) {
  config = short_run(std::move(config), {.warm_up = 0, .steps = 2});
  const std::int64_t processes = question.request.replicas / cell.plan.replicas;
  config.train.global_batch = cell.global_batch / processes;
  config.train.micro_batch = 0;
  config.train.reproducible = "off";  // it needs a micro-batch
  config.pipeline.chunks = cell.chunks;
  config.pipeline.partition = cell.plan.partition.layers_per_stage;
  config.pipeline.recompute = recompute_choice(cell.plan);
  // Generated samples are as many as configured.
  if (config.data.name == "shapes") config.data.samples = std::max(config.data.samples, config.train.global_batch);
  return config;
}

std::string no_room(const MemoryQuestion& question, const MemoryCell& cell) {
  constexpr std::uint64_t kBatchesLoaded = 4;
  if (!question.request.shares_memory) return {};
  const auto slots = static_cast<std::uint64_t>(cell.plan.devices()) * cell.plan.replicas;
  const std::uint64_t batch = static_cast<std::uint64_t>(cell.global_batch) *
                              question.costs_at(question.measured.front()).expected.front().input_bytes;
  const std::uint64_t needed = slots * std::min(cell.bound, question.limit) + kBatchesLoaded * batch;
  const std::uint64_t there = available_memory();
  if (needed <= there / 10 * 9) return {};
  return concat("it may need ", human_bytes(needed), ", and this machine has ", human_bytes(there), " available");
}

struct ProofRecord {
  std::int64_t most_samples = 0;
  std::uint64_t peak_bytes = 0;
};

ProofRecord read_proof(const std::filesystem::path& run_dir) {
  ProofRecord record;
  const auto take = [&](const nlohmann::ordered_json& line, const std::string& event) {
    if (event == "step") record.most_samples = std::max<std::int64_t>(record.most_samples, line.value("samples", 0));
    if (event == "summary") record.peak_bytes = most_of_a_device(line);
  };
  (void)report::read_records(run_dir / "metrics.jsonl", take);
  return record;
}

void run_proof(const config::Config& config, double limit_s, ProofRun& run) {
  const storage::ScratchFolder scratch("sluice-memory");
  const std::filesystem::path run_dir = scratch.path() / "run";
  log_info("running a global batch of ", run.cell.global_batch, " in ", counted(run.cell.chunks, "micro-batch"),
           " under ", human_bytes(static_cast<std::uint64_t>(config.device.memory_limit.bytes)), " a device");
  const ChildEnd end = train_in_child(config, run_dir, limit_s);
  if (end.timed_out) {
    run.why = concat("it took longer than the remaining budget of ", human_duration(limit_s));
    return;
  }
  if (end.exit_code != 0) {
    run.end = end.exit_code == static_cast<int>(ExitCode::kOutOfMemory) ? ProofEnd::kOutOfMemory : ProofEnd::kFailed;
    run.why = end.last_words;
    return;
  }
  const ProofRecord record = read_proof(run_dir);
  run.peak_bytes = record.peak_bytes;
  if (record.most_samples == config.train.global_batch) {
    run.end = ProofEnd::kRan;
  } else {
    run.why = concat("the data set has only ", counted(record.most_samples, "sample"), ", so the run used that batch");
  }
}

class Proofs {
 public:
  Proofs(const config::Config& config, const MemoryQuestion& question, double budget_s)
      : config_(config), question_(question), budget_s_(budget_s) {}

  bool run(const MemoryCell& cell) {
    ProofRun& run = runs_.emplace_back(ProofRun{.cell = cell, .why = no_room(question_, cell)});
    const double left = budget_s_ - to_s(now_ns() - begin_);
    if (run.why.empty() && left < kLeastProof_s)
      run.why = concat("the budget of ", human_duration(budget_s_), " is over; raise --budget");
    if (run.why.empty()) run_proof(proof_config(config_, question_, cell), left, run);
    return run.end == ProofEnd::kRan;
  }
  [[nodiscard]] bool ran_out_of_memory() const { return runs_.back().end == ProofEnd::kOutOfMemory; }
  [[nodiscard]] std::vector<ProofRun> take() { return std::move(runs_); }

 private:
  const config::Config& config_;
  const MemoryQuestion& question_;
  double budget_s_;
  Nanoseconds begin_ = now_ns();
  std::vector<ProofRun> runs_;
};

// The first larger batch whose expected need is `tenths` tenths of the limit.
MemoryCell clearly_too_large(const MemoryQuestion& question, MemoryCell cell, std::int64_t step, std::uint64_t tenths) {
  const std::uint64_t wanted = question.limit / 10 * tenths;
  const std::int64_t stride = std::max<std::int64_t>(1, cell.global_batch / step / 32) * step;
  while (cell.expected < wanted) cell = tune::memory_cell(question, cell.global_batch + stride, cell.chunks);
  return cell;
}

void prove_smaller(Proofs& proofs, const MemoryQuestion& question, MemoryCell cell, std::int64_t step) {
  constexpr std::uint64_t kParts = 20, kLeastParts = 10;  // of the limit
  MemoryQuestion lower = question;
  for (std::uint64_t parts = kParts - 1; parts >= kLeastParts && proofs.ran_out_of_memory(); --parts) {
    lower.limit = question.limit / kParts * parts;
    const auto smaller = tune::largest_batch(lower, cell.chunks, cell.global_batch - step);
    if (!smaller) return;
    proofs.run(cell = *smaller);
  }
}

}  // namespace

tune::MemoryQuestion memory_question(const config::Config& config, const profiler::LayerProfile& profile,
                                     const std::string& file, int processes) {
  if (config.device.memory_limit.bytes == 0)
    throw ConfigError("the memory limit is unknown; pass --limit SIZE (for example 16GiB), or set device.memory_limit");
  if (!counts_memory(profile))
    throw ConfigError(
        concat("the profile ", file, " lacks the memory of its layers; measure again with `sluice profile`"));
  const tune::PlanRequest request = request_by_profile(config, profile, processes);
  tune::MemoryQuestion question{.request = request,
                                .overheads = overheads_by_profile(config, profile, request.uncut(), processes),
                                .limit = static_cast<std::uint64_t>(config.device.memory_limit.bytes)};
  for (const profiler::LayerBytes& line : profile.layers.front().bytes) question.measured.push_back(line.samples);
  question.costs_at = [kept = std::make_shared<const profiler::LayerProfile>(profile)](std::int64_t samples) {
    return tune::MemoryCosts{.expected = kept->costs_at(samples), .most = kept->most_at(samples)};
  };
  return question;
}

const char* to_word(ProofEnd end) {
  switch (end) {
    case ProofEnd::kRan: return "ran";
    case ProofEnd::kOutOfMemory: return "out of memory";
    case ProofEnd::kFailed: return "failed";
    case ProofEnd::kNotRun: break;
  }
  return "not run";
}

std::vector<ProofRun> prove_largest(const config::Config& config, const MemoryQuestion& question,
                                    const MemoryCell& largest, double budget_s) {
  const std::int64_t step = std::int64_t{question.request.replicas} * largest.chunks;
  Proofs proofs(config, question, budget_s);
  if (!proofs.run(largest)) {
    prove_smaller(proofs, question, largest, step);
    return proofs.take();
  }
  MemoryCell next = tune::memory_cell(question, largest.global_batch + step, largest.chunks);
  for (std::uint64_t tenths = 11; proofs.run(next) && tenths <= kMostTenths; ++tenths)
    next = clearly_too_large(question, next, step, tenths);
  return proofs.take();
}

}  // namespace sluice::train
