#include "tune/advice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/concat.h"
#include "core/text.h"

namespace sluice::tune {
namespace {

using StagePart = double StageSeconds::*;

std::string ms(double seconds) { return concat(fixed(seconds * 1e3, 1), " ms"); }
std::string percent(double share) { return concat(fixed(share * 100, share < 0.1 ? 1 : 0), " %"); }
std::string bytes_text(double bytes) { return human_bytes(static_cast<std::uint64_t>(std::max(bytes, 0.0))); }

double mean_of(const std::vector<StageSeconds>& stages, StagePart part) {
  double sum = 0;
  for (const StageSeconds& stage : stages) sum += stage.*part;
  return stages.empty() ? 0 : sum / static_cast<double>(stages.size());
}

// Means over the rows that have the same stage, or the same replica.
std::map<int, double> means_by(const std::vector<StageSeconds>& stages, int StageSeconds::*key, StagePart part) {
  std::map<int, double> sums, counts;
  for (const StageSeconds& stage : stages) {
    sums[stage.*key] += stage.*part;
    counts[stage.*key] += 1;
  }
  for (auto& [id, sum] : sums) sum /= counts[id];
  return sums;
}

// Seconds of compute per step of each stage, mean over replicas.
std::vector<double> compute_of_stages(const AdviceInput& input) {
  std::vector<double> compute;
  for (const auto& [stage, seconds] : means_by(input.stages, &StageSeconds::stage, &StageSeconds::compute))
    compute.push_back(seconds);
  return compute;
}

// The step that stages with this compute per step would need.
double estimate(const std::vector<double>& compute, int chunks) {
  return pipeline_estimate(compute, chunks) / chunks;  // linear in the times: per step instead of per micro-batch
}

// A boundary layer that moves from one stage to the next or the one before.
struct Move {
  int layer = 0;
  int to = 0;  // stage
  double saved = 0;
};

// The single move that saves most; none when no move saves anything.
std::optional<Move> best_move(const AdviceInput& input, const std::vector<double>& compute) {
  const int stages = static_cast<int>(compute.size());
  const double now = estimate(compute, input.chunks);
  std::optional<Move> best;
  const auto consider = [&](int from, int to, int layer) {
    if (input.partition[from] < 2) return;  // no stage is empty
    std::vector<double> moved = compute;
    moved[from] = std::max(0.0, moved[from] - input.layers[layer]);
    moved[to] += input.layers[layer];
    const double saved = now - estimate(moved, input.chunks);
    if (saved > 0 && (!best || saved > best->saved)) best = Move{layer, to, saved};
  };
  for (int right = 1, begin = 0; right < stages; ++right) {
    begin += input.partition[right - 1];  // the first layer of the right stage
    consider(right - 1, right, begin - 1);
    consider(right, right - 1, begin);
  }
  return best;
}

constexpr double kLongMicroBatch = 5e-3;  // seconds of compute of a stage, beside which its fixed costs are small

bool layers_are_known(const AdviceInput& input, std::size_t stages) {
  const int layers = std::accumulate(input.partition.begin(), input.partition.end(), 0);
  return input.partition.size() == stages && layers > 0 && static_cast<std::size_t>(layers) == input.layers.size();
}

std::optional<Advice> bottleneck_advice(const AdviceInput& input) {
  const std::vector<double> compute = compute_of_stages(input);
  if (compute.size() < 2) return std::nullopt;
  const auto slowest = std::max_element(compute.begin(), compute.end());
  const double mean = std::accumulate(compute.begin(), compute.end(), 0.0) / static_cast<double>(compute.size());
  if (mean <= 0) return std::nullopt;
  const auto layers_of_slowest = static_cast<std::size_t>(slowest - compute.begin());
  const bool can_give = layers_of_slowest >= input.partition.size() || input.partition[layers_of_slowest] > 1;
  if (!can_give) return std::nullopt;
  const std::string what =
      concat("stage ", slowest - compute.begin(), " is the bottleneck: it computes ", ms(*slowest), " of the ",
             ms(input.step), " step, ", percent(*slowest / mean - 1), " more than the mean of the stages; ");
  if (!layers_are_known(input, compute.size())) {
    if (input.partition_is_measured) return std::nullopt;  // a better cut was looked for and not found
    const double saved = estimate(compute, input.chunks) - estimate(std::vector(compute.size(), mean), input.chunks);
    const double gain = saved / input.step;
    return Advice{
        concat(what, "moving layers to its neighbours (pipeline.partition) can save up to ", percent(gain), " of it"),
        gain};
  }
  const std::optional<Move> move = best_move(input, compute);
  if (!move) return std::nullopt;
  const double gain = move->saved / input.step;
  return Advice{concat(what, "moving layer ", move->layer, " to stage ", move->to, " (pipeline.partition) predicts -",
                       percent(gain)),
                gain};
}

// T(m) = (m + p - 1) (a + s B / m), the step of p equal stages.
double step_with_chunks(const AdviceInput& input, int stages, int chunks) {
  const auto& [overhead, per_sample] = *input.micro_batch;
  return (chunks + stages - 1) * (overhead + per_sample * input.replica_samples / chunks);
}

std::string chunks_setting(const AdviceInput& input, int chunks) {
  return input.chunks_are_ordered ? concat("a pipeline.order of ", counted(chunks, "micro-batch"))
                                  : concat("pipeline.chunks = ", chunks);
}

std::optional<Advice> more_chunks_advice(const AdviceInput& input, int stages) {
  const int twice = 2 * input.chunks;
  if (stages < 2 || (input.replica_samples > 0 && twice > input.replica_samples)) return std::nullopt;
  if (input.chunks_are_measured) return std::nullopt;
  const std::vector<double> compute = compute_of_stages(input);
  // What a micro-batch costs whatever its size is not known: it may eat up the gain where micro-batches are short.
  const double shortest = *std::ranges::min_element(compute) / input.chunks;
  if (!input.micro_batch && shortest < kLongMicroBatch) return std::nullopt;
  const double bubble = mean_of(input.stages, &StageSeconds::fill) + mean_of(input.stages, &StageSeconds::drain);
  // The bubble is p - 1 micro-batches long. Half as large ones halve it, but for their overhead, and more pay it.
  // Where stages differ, the bubble is mostly waiting for the slowest, which smaller micro-batches do not shorten.
  double saved = std::min(bubble / 2, estimate(compute, input.chunks) - estimate(compute, twice));
  if (input.micro_batch) saved -= input.micro_batch->overhead * (input.chunks + (stages - 1) / 2.0);
  const double gain = saved / input.step;
  return Advice{concat("the pipeline fills and drains for ", ms(bubble), " of the ", ms(input.step), " step (",
                       percent(bubble / input.step), "); ", chunks_setting(input, twice), " instead of ", input.chunks,
                       input.micro_batch ? " predicts -" : " can save up to ", percent(gain)),
                gain};
}

std::optional<Advice> fewer_chunks_advice(const AdviceInput& input, int stages) {
  if (!input.micro_batch || input.micro_batch->overhead <= 0 || input.replica_samples < 1) return std::nullopt;
  const auto& [overhead, per_sample] = *input.micro_batch;
  const double optimum = std::sqrt((stages - 1) * per_sample * input.replica_samples / overhead);
  if (optimum >= input.chunks) return std::nullopt;
  int best = input.chunks;
  for (const double candidate : {std::floor(optimum), std::ceil(optimum)}) {
    const int chunks = std::max(1, static_cast<int>(candidate));
    if (step_with_chunks(input, stages, chunks) < step_with_chunks(input, stages, best)) best = chunks;
  }
  const double saved = step_with_chunks(input, stages, input.chunks) - step_with_chunks(input, stages, best);
  const double gain = std::min(1.0, saved / input.step);
  return Advice{concat("each of the ", input.chunks, " micro-batches costs ", ms(overhead), " whatever its size, ",
                       percent(overhead * input.chunks / input.step), " of the step; ", chunks_setting(input, best),
                       " predicts -", percent(gain), ", with more memory for activations"),
                gain};
}

std::optional<Advice> load_advice(const AdviceInput& input) {
  const double load = mean_of(input.stages, &StageSeconds::load);
  const double gain = load / input.step;
  const std::string now = concat(" (now ", input.data_workers, ")");
  return Advice{concat("the step waits ", ms(load), " of ", ms(input.step), " (", percent(gain),
                       ") for its data; more data.workers", now, " can save up to that"),
                gain};
}

std::optional<Advice> communication_advice(const AdviceInput& input) {
  const double exposed = mean_of(input.stages, &StageSeconds::allreduce);
  const double gain = exposed / input.step / 2;  // twice the samples for the same all-reduce
  std::string how;
  if (input.sync_bytes > 0) how = concat(", ", bytes_text(input.sync_bytes), " a step");
  if (input.sync_bytes > 0 && input.allreduce > 0)
    how += concat(" at ", bytes_text(input.sync_bytes / input.allreduce), "/s");
  if (input.network_bytes_per_s > 0) how += concat(", network ", bytes_text(input.network_bytes_per_s), "/s");
  return Advice{concat("the replicas' all-reduce takes ", ms(exposed), " of ", ms(input.step), " (",
                       percent(exposed / input.step), ") that no compute hides", how,
                       ": twice the train.global_batch synchronises half as often and can save up to ", percent(gain),
                       " of the time per sample"),
                gain};
}

// What is known of who was waited for.
std::optional<Advice> skew_advice(const AdviceInput& input) {
  if (input.late_rank) {
    const auto& [rank, late] = *input.late_rank;
    return Advice{concat("rank ", rank, " is the slowest: the others wait ", ms(late), " of the ", ms(input.step),
                         " step for it; without that the step would be shorter by up to ", percent(late / input.step)),
                  late / input.step};
  }
  const std::map<int, double> waits = means_by(input.stages, &StageSeconds::replica, &StageSeconds::skew);
  if (waits.empty()) return std::nullopt;
  const auto latest = std::ranges::min_element(waits, [](const auto& a, const auto& b) { return a.second < b.second; });
  double others = 0;
  for (const auto& [replica, wait] : waits) others += wait;
  others -= latest->second;
  if (waits.size() > 1) others /= static_cast<double>(waits.size() - 1);
  // All wait: the replicas take turns at being late.
  if (waits.size() == 1 || latest->second > others / 2) return std::nullopt;
  const double late = others - latest->second;
  return Advice{
      concat("replica ", latest->first, " is the slowest: the others wait ", ms(late), " of the ", ms(input.step),
             " step for it; without that the step would be shorter by up to ", percent(late / input.step)),
      late / input.step};
}

// more_chunks: another rule asks for them, so that this one must not ask for fewer.
std::optional<Advice> idle_advice(const AdviceInput& input, bool more_chunks) {
  const double idle = mean_of(input.stages, &StageSeconds::other);
  const double gain = idle / input.step / 2;  // half as many kernels, for twice the samples or half the chunks
  const bool fewer = input.chunks > 1 && !more_chunks;
  return Advice{
      concat("the devices idle ", ms(idle), " of ", ms(input.step), " (", percent(idle / input.step),
             ") between their work, waiting for none of the above, as many small operations make them do: ",
             fewer ? concat("half the ", input.chunks,
                            input.chunks_are_ordered ? " micro-batches of pipeline.order" : " pipeline.chunks")
                   : "twice the train.global_batch",
             " can save up to ", percent(gain), " of the time per sample"),
      gain};
}

}  // namespace

double pipeline_estimate(std::span<const double> stage_seconds, int chunks) {
  if (stage_seconds.empty()) return 0;
  return std::accumulate(stage_seconds.begin(), stage_seconds.end(), 0.0) +
         (chunks - 1) * *std::max_element(stage_seconds.begin(), stage_seconds.end());
}

std::vector<Advice> advise(const AdviceInput& input) {
  if (!(input.step > 0) || input.stages.empty() || input.chunks < 1) return {};
  const int stages = static_cast<int>(compute_of_stages(input).size());
  std::vector<Advice> worthwhile;
  const auto add = [&](std::optional<Advice> advice) {
    if (!advice || !(advice->gain >= kWorthwhile)) return false;
    worthwhile.push_back(std::move(*advice));
    return true;
  };
  add(bottleneck_advice(input));
  const bool more_chunks = add(more_chunks_advice(input, stages));
  if (!more_chunks) add(fewer_chunks_advice(input, stages));
  add(load_advice(input));
  add(communication_advice(input));
  add(skew_advice(input));
  add(idle_advice(input, more_chunks));
  std::ranges::stable_sort(worthwhile, std::greater{}, &Advice::gain);
  return worthwhile;
}

}  // namespace sluice::tune
