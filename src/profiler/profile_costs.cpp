#include "profiler/layer_profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/text.h"

namespace sluice::profiler {
namespace {

constexpr std::array kWorkingParts{&WorkingBytes::forward,        &WorkingBytes::backward,
                                   &WorkingBytes::input_gradient, &WorkingBytes::weight_gradient,
                                   &WorkingBytes::held_backward,  &WorkingBytes::held_input_gradient};

// Raises `own` to the other's value at `samples` if that is larger.
void raise_to(AffineBytes& own, const AffineBytes& other, std::int64_t samples) {
  const auto n = static_cast<std::uint64_t>(samples);
  if (other.at(n) > own.at(n)) own.fixed += other.at(n) - own.at(n);
}

void raise_to(WorkingBytes& own, const WorkingBytes& other, std::int64_t samples) {
  for (const auto part : kWorkingParts) raise_to(own.*part, other.*part, samples);
}

WorkingBytes working_once_of(const std::optional<WorkingBytes>& known, WorkingBytes working,
                             std::uint64_t transformed) {
  if (known) return *known;
  for (const auto part : {&WorkingBytes::forward, &WorkingBytes::backward, &WorkingBytes::input_gradient,
                          &WorkingBytes::held_backward, &WorkingBytes::held_input_gradient})
    (working.*part).fixed += transformed;
  return working;
}

void raise_to(LayerCost& cost, const LayerBytes& line, std::int64_t samples) {
  WorkingBytes once = working_once_of(cost.working_once, cost.working, cost.transformed_bytes);
  raise_to(once, working_once_of(line.working_once, line.working, line.transformed), samples);
  cost.working_once = once;
  raise_to(cost.saved_bytes, line.saved, samples);
  raise_to(cost.loss_bytes, line.loss, samples);
  raise_to(cost.loss_working, line.loss_working, samples);
  raise_to(cost.stash_bytes, line.stash, samples);
  raise_to(cost.working, line.working, samples);
  cost.transformed_bytes = std::max(cost.transformed_bytes, line.transformed);
}

// A line through zero with the same value at `samples`.
AffineBytes by_shares(const AffineBytes& bytes, std::int64_t samples) {
  const auto n = static_cast<std::uint64_t>(samples);
  return {.fixed = 0, .per_sample = divided_up(bytes.at(n), n)};
}

WorkingBytes by_shares(WorkingBytes bytes, std::int64_t samples) {
  for (const auto part : kWorkingParts) bytes.*part = by_shares(bytes.*part, samples);
  return bytes;
}

// A bound for larger micro-batches: a moment's bytes are concave, so bytes per sample do not grow.
LayerBytes by_shares(LayerBytes line) {
  for (const auto bytes : {&LayerBytes::saved, &LayerBytes::loss, &LayerBytes::loss_working, &LayerBytes::stash})
    line.*bytes = by_shares(line.*bytes, line.samples);
  line.working = by_shares(line.working, line.samples);
  if (line.working_once) line.working_once = by_shares(*line.working_once, line.samples);
  return line;
}

// Whether micro-batches of this size run a kernel that transforms weights. True if unknown.
bool transforms(const MeasuredLayer& layer, std::int64_t samples) {
  return layer.bytes.empty() || samples == 0 || bytes_of(layer.bytes, samples).transformed > 0;
}

void forget_first_use(LayerCost& cost) { cost.first_forward_s = cost.first_backward_s = 0; }

// Seconds from the line through the neighbours. Kernels rarely change twice within three sizes.
double distance_from_neighbours(const TimeAtSize& smaller, const TimeAtSize& own, const TimeAtSize& larger) {
  const double share = (own.size - smaller.size) / (larger.size - smaller.size);
  return std::abs(own.time_s - smaller.time_s - share * (larger.time_s - smaller.time_s));
}

}  // namespace

std::vector<LayerCost> LayerProfile::costs() const {
  std::vector<LayerCost> costs;
  const double scale = compute_scale();
  for (const MeasuredLayer& layer : layers) {
    costs.push_back(layer.cost.times_scaled(scale));
    if (!transforms(layer, micro_batch)) forget_first_use(costs.back());
  }
  return costs;
}

double LayerProfile::compute_scale() const {
  if (!step || step->compute_s <= 0 || step->predicted_compute_s <= 0) return 1;
  return step->compute_s / step->predicted_compute_s;
}

ProfileQuality LayerProfile::quality() const {
  ProfileQuality quality{.slowdown = 0, .compute_scale = compute_scale()};
  const auto samples = static_cast<double>(micro_batch);
  double seconds = 0, seconds_between = 0, off = 0;
  for (const MeasuredLayer& layer : layers) {
    const LayerCost& cost = layer.cost;
    seconds += cost.seconds(samples);
    quality.slowdown += cost.slowdown * cost.seconds(samples);
    for (const SizedCost* part : {&cost.forward, &cost.input_gradient, &cost.weight_gradient}) {
      for (std::size_t i = 1; i + 1 < part->points.size(); ++i) {
        seconds_between += part->points[i].time_s;
        off += distance_from_neighbours(part->points[i - 1], part->points[i], part->points[i + 1]);
      }
    }
  }
  quality.slowdown = seconds > 0 ? quality.slowdown / seconds : 1;
  if (seconds_between > 0) quality.scatter = off / seconds_between;
  return quality;
}

std::string LayerProfile::describe_quality() const {
  const auto [slowdown, scatter, scale] = quality();
  std::vector<std::string> words;
  if (contenders > 1) words.push_back(concat("slow-down ", fixed(slowdown, 2)));
  if (scatter) words.push_back(concat("times scatter by ", percent(*scatter)));
  if (step) words.push_back(concat("steps ", fixed(scale, 2), " times as long as their layers"));
  return words.empty() ? "with one or two batch sizes" : join(words, ", ");
}

std::string LayerProfile::disturbance() const {
  constexpr double kMostScatter = 0.25, kFarOff = 1.5;
  const auto [slowdown, scatter, scale] = quality();
  std::vector<std::string> words;
  if (slowdown > contenders)
    words.push_back(concat(counted(contenders, "device"), " slow each other down ", fixed(slowdown, 1), " times"));
  if (scatter && *scatter > kMostScatter) words.push_back(concat("times scatter by ", percent(*scatter)));
  if (scale > kFarOff || scale < 1 / kFarOff)
    words.push_back(concat("steps computed ", fixed(scale, 1), " times as long as their layers alone"));
  return join(words, ", ");
}

const LinkCost* LayerProfile::all_reduce_of(int processes, int local_replicas) const {
  const AllReduceLink* best = nullptr;
  for (const AllReduceLink& link : all_reduces) {
    if (link.processes != processes) continue;
    const bool is_enough = link.local_replicas >= local_replicas;
    const bool best_is = best != nullptr && best->local_replicas >= local_replicas;
    if (best == nullptr || (is_enough && (!best_is || link.local_replicas < best->local_replicas)) ||
        (!best_is && link.local_replicas > best->local_replicas))
      best = &link;
  }
  return best != nullptr ? &best->cost : nullptr;
}

void set_bytes(LayerCost& cost, const LayerBytes& bytes) {
  cost.saved_bytes = bytes.saved;
  cost.saves_input = bytes.saves_input;
  cost.saves_output = bytes.saves_output;
  cost.loss_bytes = bytes.loss;
  cost.loss_working = bytes.loss_working;
  cost.stash_bytes = bytes.stash;
  cost.stashes_input = bytes.stashes_input;
  cost.stashes_output_gradient = bytes.stashes_output_gradient;
  cost.working = bytes.working;
  cost.transformed_bytes = bytes.transformed;
  cost.working_once = bytes.working_once;
}

const LayerBytes& bytes_of(const std::vector<LayerBytes>& bytes, std::int64_t samples) {
  const auto line = std::ranges::lower_bound(bytes, samples, {}, &LayerBytes::samples);
  return line == bytes.end() ? bytes.back() : *line;
}

std::vector<LayerCost> LayerProfile::costs_at(std::int64_t samples) const {
  std::vector<LayerCost> costs;
  const double scale = compute_scale();
  for (const MeasuredLayer& layer : layers) {
    LayerCost& cost = costs.emplace_back(layer.cost.times_scaled(scale));
    if (!layer.bytes.empty()) set_bytes(cost, bytes_of(layer.bytes, samples));
    if (!transforms(layer, samples)) forget_first_use(cost);
  }
  return costs;
}

std::vector<LayerCost> LayerProfile::most_at(std::int64_t samples) const {
  std::vector<LayerCost> costs = costs_at(samples);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::vector<LayerBytes>& lines = layers[i].bytes;
    const auto own = std::ranges::lower_bound(lines, samples, {}, &LayerBytes::samples);
    if (own == lines.end() && !lines.empty()) raise_to(costs[i], by_shares(lines.back()), samples);
    if (own == lines.end() || own->samples == samples) continue;
    if (own != lines.begin()) raise_to(costs[i], *(own - 1), samples);
    if (own + 1 != lines.end()) raise_to(costs[i], *(own + 1), samples);
  }
  return costs;
}

}  // namespace sluice::profiler
