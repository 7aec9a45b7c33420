#include "tune/advice.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/partition.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

using DevicePart = double DeviceSeconds::*;

std::string ms(double seconds) { return concat(fixed(seconds * 1e3, 1), " ms"); }
std::string bytes_text(double bytes) { return human_bytes(static_cast<std::uint64_t>(std::max(bytes, 0.0))); }

double mean_of(const std::vector<DeviceSeconds>& devices, DevicePart part) {
  double sum = 0;
  for (const DeviceSeconds& device : devices) sum += device.*part;
  return devices.empty() ? 0 : sum / static_cast<double>(devices.size());
}

std::map<int, double> means_by(const std::vector<DeviceSeconds>& devices, int DeviceSeconds::*key, DevicePart part) {
  std::map<int, double> sums, counts;
  for (const DeviceSeconds& device : devices) {
    sums[device.*key] += device.*part;
    counts[device.*key] += 1;
  }
  for (auto& [id, sum] : sums) sum /= counts[id];
  return sums;
}

// Seconds per step of a replica's devices, mean over replicas.
struct Work {
  std::vector<double> forward, backward;

  [[nodiscard]] std::vector<double> both() const {
    std::vector<double> sums = forward;
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += backward[d];
    return sums;
  }
  [[nodiscard]] Work evened() const {
    const auto mean = [](const std::vector<double>& of) {
      return std::vector(of.size(), std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size()));
    };
    return {mean(forward), mean(backward)};
  }
};

Work work_of(const AdviceInput& input) {
  Work work;
  for (const auto& [device, seconds] : means_by(input.devices, &DeviceSeconds::device, &DeviceSeconds::forward))
    work.forward.push_back(seconds);
  for (const auto& [device, seconds] : means_by(input.devices, &DeviceSeconds::device, &DeviceSeconds::backward))
    work.backward.push_back(seconds);
  return work;
}

std::optional<pipeline::Schedule> advised_schedule(const Plan& plan) {
  try {
    return pipeline::make_train_schedule(plan, plan.chunks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// A step of this work only, without fixed costs of chunks. Input and weight gradients each take half of the backward.
std::optional<double> seconds_of(const Work& work, const Plan& plan) {
  const auto schedule = advised_schedule(plan);
  if (!schedule || schedule->devices.size() != work.forward.size()) return std::nullopt;
  std::vector<pipeline::StepCost> devices;
  for (std::size_t d = 0; d < work.forward.size(); ++d) {
    const double half = work.backward[d] / 2 / plan.chunks;
    devices.push_back({.forward = work.forward[d] / plan.chunks, .input = half, .weight = half});
  }
  return predict_step(*schedule, {.stages = pipeline::share_costs(*schedule, devices)}).seconds;
}

bool layers_are_known(const AdviceInput& input) {
  const auto& counts = input.plan.partition.layers_per_stage;
  return input.costs.predict && !input.costs.layers.empty() &&
         std::accumulate(counts.begin(), counts.end(), std::size_t{0}) == input.costs.layers.size();
}

double micro_batch_of(const AdviceInput& input, const Plan& plan) { return input.replica_samples / plan.chunks; }

// Predicted from costs if they are known, else simulated from the measured work; empty for a plan that cannot run.
std::optional<double> seconds_under(const AdviceInput& input, const Plan& plan) {
  return layers_are_known(input) ? input.costs.predict(plan, input.costs.bucket_mb) : seconds_of(work_of(input), plan);
}

// The share of a step that is saved. An estimate from compute alone is relative to the whole measured step.
double gain_of(const AdviceInput& input, double now, double saved) {
  return saved / (layers_are_known(input) ? now : std::max(now, input.step));
}

// The bucket size in MiB with the shortest predicted step. Small buckets start earlier, but each one costs a latency.
std::optional<Advice> bucket_advice(const AdviceInput& input) {
  if (!layers_are_known(input) || input.costs.bucket_mb <= 0) return std::nullopt;
  const auto now = seconds_under(input, input.plan);
  if (!now) return std::nullopt;
  double best = 0, saved = 0;
  for (const double mib : {64, 32, 16, 8, 4, 2, 1}) {
    const double saves = *now - input.costs.predict(input.plan, mib).value_or(*now);
    if (saves > saved * (1 + 1e-9)) saved = saves, best = mib;
  }
  const double gain = gain_of(input, *now, saved);
  return Advice{concat("gradients are summed in buckets of ", input.costs.bucket_mb,
                       " MiB; replicas.bucket_mb = ", best, " predicts -", percent(gain)),
                gain};
}

std::optional<double> saving_of(const AdviceInput& input, std::optional<double> now, const Plan& other) {
  const auto then = now ? seconds_under(input, other) : std::nullopt;
  return then ? std::optional(*now - *then) : std::nullopt;
}

struct Move {
  int layer = 0;
  int to = 0;
  double gain = 0;
};

// The single move off this device that saves most; empty if no move saves time. Requires: layer costs are known.
std::optional<Move> best_move(const AdviceInput& input, int device) {
  const std::vector<int> owners = pipeline::stage_owners(input.plan);
  const auto now = seconds_under(input, input.plan);
  std::optional<Move> best;
  if (!now) return best;
  const auto consider = [&](int from, int to, int layer) {
    if (owners[from] != device || owners[to] == device) return;
    if (input.plan.partition.layers_per_stage[from] < 2) return;
    Plan moved = input.plan;
    --moved.partition.layers_per_stage[from];
    ++moved.partition.layers_per_stage[to];
    const double gain = gain_of(input, *now, saving_of(input, now, moved).value_or(0));
    if (gain > 0 && (!best || gain > best->gain)) best = Move{layer, to, gain};
  };
  for (int right = 1, begin = 0; right < input.plan.stages(); ++right) {
    begin += input.plan.partition.layers_per_stage[right - 1];
    consider(right - 1, right, begin - 1);
    consider(right, right - 1, begin);
  }
  return best;
}

constexpr double kLongMicroBatch = 5e-3;  // seconds of compute per device above which fixed costs are small

bool can_give(const Plan& plan, int device) {
  const std::vector<int> owners = pipeline::stage_owners(plan);
  for (int s = 0; s < plan.stages(); ++s) {
    if (owners[s] == device && plan.partition.layers_per_stage[s] > 1) return true;
  }
  return false;
}

bool is_its_stage(const Plan& plan) {
  const std::vector<int> owners = pipeline::stage_owners(plan);
  for (int s = 0; s < plan.stages(); ++s)
    if (owners[s] != s) return false;
  return true;
}

std::optional<Advice> bottleneck_advice(const AdviceInput& input) {
  const Work work = work_of(input);
  const std::vector<double> compute = work.both();
  if (compute.size() < 2 || input.plan.devices() != static_cast<int>(compute.size())) return std::nullopt;
  const auto slowest = std::max_element(compute.begin(), compute.end());
  const double mean = work.evened().both().front();
  const int device = static_cast<int>(slowest - compute.begin());
  if (mean <= 0 || !can_give(input.plan, device)) return std::nullopt;
  const std::string one = is_its_stage(input.plan) ? "stage" : "device";
  const std::string what =
      concat(one, " ", device, " is the bottleneck: it computes ", ms(*slowest), " of the ", ms(input.step), " step, ",
             percent(*slowest / mean - 1), " more than the mean of the ", one, "s; ");
  if (!layers_are_known(input)) {
    if (input.partition_is_measured) return std::nullopt;
    const auto now = seconds_of(work, input.plan), evened = seconds_of(work.evened(), input.plan);
    if (!now || !evened) return std::nullopt;
    const double gain = gain_of(input, *now, *now - *evened);
    return Advice{
        concat(what, "moving layers to its neighbours (pipeline.partition) can save up to ", percent(gain), " of it"),
        gain};
  }
  const std::optional<Move> move = best_move(input, device);
  if (!move) return std::nullopt;
  return Advice{concat(what, "moving layer ", move->layer, " to stage ", move->to, " (pipeline.partition) predicts -",
                       percent(move->gain)),
                move->gain};
}

// A user's schedule file is valid for one number of chunks only.
bool is_from_file(const AdviceInput& input) { return !input.plan.schedule_text.empty(); }

Plan with_chunks(Plan plan, int chunks) {
  plan.chunks = chunks;
  return plan;
}

// Cost of a micro-batch on the slowest device that does not depend on its size. Requires: layer costs are known.
double fixed_cost(const AdviceInput& input) {
  const std::vector<double> now = device_times(input.costs.layers, micro_batch_of(input, input.plan), input.plan);
  const auto slowest = std::ranges::max_element(now) - now.begin();
  return device_times(input.costs.layers, 0, input.plan)[slowest];
}

double hops_latency(const AdviceInput& input) {
  double latency = 0;
  for (const LinkCost& border : input.costs.borders) latency += 2 * border.latency_s;
  return latency;
}

std::optional<Advice> more_chunks_advice(const AdviceInput& input) {
  const int chunks = input.plan.chunks, twice = 2 * chunks;
  const std::vector<double> compute = work_of(input).both();
  if (compute.size() < 2 || (input.replica_samples > 0 && twice > input.replica_samples)) return std::nullopt;
  if (input.chunks_are_measured || is_from_file(input)) return std::nullopt;
  // The fixed cost of a micro-batch is unknown here; for short micro-batches it could outweigh the gain.
  const bool by_layers = layers_are_known(input);
  if (!by_layers && *std::ranges::min_element(compute) / chunks < kLongMicroBatch) return std::nullopt;
  const auto now = seconds_under(input, input.plan);
  std::optional<double> saved = saving_of(input, now, with_chunks(input.plan, twice));
  const double bubble = mean_of(input.devices, &DeviceSeconds::fill) + mean_of(input.devices, &DeviceSeconds::drain);
  // Micro-batches of half the size save at most half the bubble. Steps without a bubble gain nothing.
  if (!saved || bubble / 2 < kWorthwhile * input.step) return std::nullopt;
  if (!by_layers) saved = std::min(*saved, bubble / 2);
  const double gain = gain_of(input, *now, *saved);
  return Advice{concat("the pipeline fills and drains for ", ms(bubble), " of the ", ms(input.step), " step (",
                       percent(bubble / input.step), "); pipeline.chunks = ", twice, " instead of ", chunks,
                       by_layers ? " predicts -" : " can save up to ", percent(gain)),
                gain};
}

std::optional<Advice> fewer_chunks_advice(const AdviceInput& input) {
  if (!layers_are_known(input) || input.replica_samples < 1 || is_from_file(input)) return std::nullopt;
  int best = input.plan.chunks;
  const auto now = seconds_under(input, input.plan);
  double most_saved = 0;
  const int stride = std::max(1, input.plan.chunks / 64);  // neighbours among many numbers differ little
  for (int chunks = 1; chunks < input.plan.chunks; ++chunks) {
    if (chunks % stride != 0 && !std::has_single_bit(static_cast<unsigned>(chunks))) continue;
    const double saved = saving_of(input, now, with_chunks(input.plan, chunks)).value_or(0);
    if (saved > most_saved) most_saved = saved, best = chunks;
  }
  if (best == input.plan.chunks) return std::nullopt;
  const double gain = gain_of(input, *now, most_saved), hops = hops_latency(input);
  return Advice{
      concat("each of the ", input.plan.chunks, " micro-batches costs the slowest device ", ms(fixed_cost(input)),
             " whatever its size", hops > 0 ? concat(", and is on its way between devices for ", ms(hops)) : "",
             "; pipeline.chunks = ", best, " predicts -", percent(gain), ", with more memory for activations"),
      gain};
}

std::optional<Advice> load_advice(const AdviceInput& input) {
  const double load = mean_of(input.devices, &DeviceSeconds::load);
  const double gain = load / input.step;
  const std::string now = concat(" (now ", input.data_workers, ")");
  return Advice{concat("the step waits ", ms(load), " of ", ms(input.step), " (", percent(gain),
                       ") for its data; more data.workers", now, " can save up to that"),
                gain};
}

std::optional<Advice> communication_advice(const AdviceInput& input) {
  const double exposed = mean_of(input.devices, &DeviceSeconds::allreduce);
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

std::optional<Advice> skew_advice(const AdviceInput& input) {
  if (input.late_rank) {
    const auto& [rank, late] = *input.late_rank;
    return Advice{concat("rank ", rank, " is the slowest: the others wait ", ms(late), " of the ", ms(input.step),
                         " step for it; without that the step would be shorter by up to ", percent(late / input.step)),
                  late / input.step};
  }
  const std::map<int, double> waits = means_by(input.devices, &DeviceSeconds::replica, &DeviceSeconds::skew);
  if (waits.empty()) return std::nullopt;
  const auto latest = std::ranges::min_element(waits, [](const auto& a, const auto& b) { return a.second < b.second; });
  double others = 0;
  for (const auto& [replica, wait] : waits) others += wait;
  others -= latest->second;
  if (waits.size() > 1) others /= static_cast<double>(waits.size() - 1);
  // If all wait, the replicas take turns at being late.
  if (waits.size() == 1 || latest->second > others / 2) return std::nullopt;
  const double late = others - latest->second;
  return Advice{
      concat("replica ", latest->first, " is the slowest: the others wait ", ms(late), " of the ", ms(input.step),
             " step for it; without that the step would be shorter by up to ", percent(late / input.step)),
      late / input.step};
}

// more_chunks: another rule suggests more chunks, so this rule must not suggest fewer. Measured chunks also stay.
std::optional<Advice> idle_advice(const AdviceInput& input, bool more_chunks) {
  const double idle = mean_of(input.devices, &DeviceSeconds::other);
  const double gain = idle / input.step / 2;  // half as many kernels: twice the samples or half the chunks
  const bool fewer = input.plan.chunks > 1 && !more_chunks && !input.chunks_are_measured;
  return Advice{
      concat("the devices idle ", ms(idle), " of ", ms(input.step), " (", percent(idle / input.step),
             ") while operations start and threads wake (the column 'other'). Fewer, larger operations help: ",
             fewer ? concat("half the ", input.plan.chunks,
                            is_from_file(input) ? " micro-batches of pipeline.order" : " pipeline.chunks")
                   : "twice the train.global_batch",
             " can save up to ", percent(gain), " of the time per sample"),
      gain};
}

}  // namespace

std::vector<Advice> advise(const AdviceInput& input) {
  if (!(input.step > 0) || input.devices.empty() || input.plan.chunks < 1) return {};
  std::vector<Advice> worthwhile;
  const auto add = [&](std::optional<Advice> advice) {
    if (!advice || !(advice->gain >= kWorthwhile)) return false;
    worthwhile.push_back(std::move(*advice));
    return true;
  };
  add(bottleneck_advice(input));
  const bool more_chunks = add(more_chunks_advice(input));
  if (!more_chunks) add(fewer_chunks_advice(input));
  add(load_advice(input));
  add(communication_advice(input));
  add(bucket_advice(input));
  add(skew_advice(input));
  add(idle_advice(input, more_chunks));
  std::ranges::stable_sort(worthwhile, std::greater{}, &Advice::gain);
  return worthwhile;
}

}  // namespace sluice::tune
