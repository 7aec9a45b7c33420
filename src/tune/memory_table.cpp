#include "tune/memory_table.h"

#include <algorithm>
#include <set>

#include "core/check.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/text.h"
#include "tune/memory_model.h"

namespace sluice::tune {
namespace {

std::uint64_t with_overhead_bytes(std::uint64_t bytes, bool shares_memory) {
  return shares_memory ? bytes + kSmallTensors : divided_up(bytes, std::uint64_t{9}) * 10;
}

std::uint64_t need(const MemoryQuestion& question, std::vector<LayerCost> costs, const Plan& plan) {
  const MemoryModel model{.layers = std::move(costs),
                          .shares_memory = question.request.shares_memory,
                          .processes = question.request.replicas / plan.replicas};
  const auto bytes = estimate_bytes(model, plan);
  check(bytes.has_value(), "a schedule for a plan from make_plan()");
  return *bytes;
}

class MicroBatches {
 public:
  MicroBatches(const MemoryQuestion& question, int chunks, std::int64_t most)
      : question_(question),
        chunks_(chunks),
        step_(std::int64_t{question.request.replicas} * chunks),
        most_(most / step_) {}

  [[nodiscard]] std::optional<MemoryCell> largest() const {
    // At measured sizes need may fall, because kernels change. Between and beyond them it rises.
    std::int64_t above = most_ + 1;
    for (auto size = question_.measured.rbegin(); size != question_.measured.rend(); ++size) {
      if (const auto found = largest_between(*size + 1, above - 1)) return cell(*found);

      if (*size <= most_ && fits(*size)) return cell(*size);
      above = std::min(above, *size);
    }
    const auto found = largest_between(1, above - 1);
    return found ? std::optional(cell(*found)) : std::nullopt;
  }

 private:
  [[nodiscard]] MemoryCell cell(std::int64_t samples) const { return memory_cell(question_, samples * step_, chunks_); }
  [[nodiscard]] bool fits(std::int64_t samples) const { return cell(samples).fit == Fit::kFits; }
  [[nodiscard]] std::optional<std::int64_t> largest_between(std::int64_t first, std::int64_t last) const {
    if (first > last || !fits(first)) return std::nullopt;
    std::int64_t good = first, step = 1;
    while (good < last && fits(std::min(good + step, last))) good = std::min(good + step, last), step *= 2;
    std::int64_t bad = std::min(good + step, last + 1);
    while (bad - good > 1) {
      const std::int64_t middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    return good;
  }

  const MemoryQuestion& question_;
  int chunks_;
  std::int64_t step_, most_;
};

}  // namespace

const char* to_word(Fit fit) {
  switch (fit) {
    case Fit::kFits: return "fits";
    case Fit::kOutOfMemory: return "out of memory";
    case Fit::kImpossible: break;
  }
  return "impossible";
}

MemoryCell memory_cell(const MemoryQuestion& question, std::int64_t global_batch, int chunks) {
  MemoryCell cell{.global_batch = global_batch, .chunks = chunks};
  PlanRequest request = question.request;
  request.plan.global_batch = global_batch;
  request.plan.chunks = chunks;
  request.chunks_are_open = false;
  if (global_batch / request.replicas < chunks) {
    cell.why = concat("a replica has fewer than ", counted(chunks, "sample"));
    return cell;
  }
  MemoryCosts costs = question.costs_at(largest_micro_batch(global_batch, request.replicas, chunks));
  try {
    cell.plan = plan_of_chunks(request, costs.expected, question.overheads);
  } catch (const ConfigError& error) {
    cell.why = error.what();
    return cell;
  }
  cell.expected = need(question, std::move(costs.expected), cell.plan);
  cell.bound = with_overhead_bytes(std::max(cell.expected, need(question, std::move(costs.most), cell.plan)),
                                   request.shares_memory);
  cell.fit = cell.bound <= question.limit ? Fit::kFits : Fit::kOutOfMemory;
  return cell;
}

std::optional<MemoryCell> largest_batch(const MemoryQuestion& question, int chunks, std::int64_t most) {
  check(!question.measured.empty(), "at least one measured size");
  return MicroBatches(question, chunks, most).largest();
}

std::vector<int> usual_chunks(const MemoryQuestion& question) {
  constexpr std::int64_t kMost = 64;
  const Plan& plan = question.request.plan;
  const std::int64_t most = std::min(kMost, plan.global_batch / question.request.replicas);
  std::set<int> chunks{plan.chunks};
  for (int n = 1; n <= most; n *= 2) chunks.insert(n);
  return {chunks.begin(), chunks.end()};
}

std::vector<std::int64_t> usual_batches(const MemoryQuestion& question, const std::vector<int>& chunks) {
  constexpr int kHalves = 3, kMostDoubles = 20;
  std::int64_t batch = question.request.plan.global_batch;
  for (int i = 0; i < kHalves && batch % 2 == 0 && batch / 2 >= question.request.replicas; ++i) batch /= 2;
  const auto fits_somehow = [&](std::int64_t global_batch) {
    return std::ranges::any_of(chunks, [&](int n) { return memory_cell(question, global_batch, n).fit == Fit::kFits; });
  };
  std::vector<std::int64_t> batches{batch};
  for (int i = 0; i < kMostDoubles && (batch < question.request.plan.global_batch || fits_somehow(batch)); ++i) {
    batch *= 2;
    batches.push_back(batch);
  }
  return batches;
}

}  // namespace sluice::tune
