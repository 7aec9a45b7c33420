#include "tune/cut_bound.h"

#include <algorithm>
#include <cstddef>

#include "core/ids.h"
#include "pipeline/schedule/inspect.h"
#include "tune/contention.h"
#include "tune/possible_stages.h"

namespace sluice::tune {

using pipeline::Op;

CutBound::CutBound(std::span<const LayerCost> layers, const pipeline::Schedule& schedule, Recompute recompute,
                   double micro_batch, const StepOverheads& overheads, double frozen_s)
    : layers_(static_cast<int>(layers.size())),
      stages_(schedule.stages),
      micro_batches_(schedule.micro_batches),
      frozen_s_(frozen_s),
      overheads_(overheads),
      owners_(pipeline::stage_owners(schedule)) {
  set_contention(layers, static_cast<int>(schedule.devices.size()), recompute);
  add_schedule(schedule);
  add_layers(layers, recompute, micro_batch);
  find_busiest_stages();
}

double CutBound::of(std::span<const int> ends) const {
  const KnownStages known = known_stages(ends);
  double makespan = std::max({round_trip(known), open_devices_time(known), cores_time()});
  for (const DeviceFacts& device : devices_) makespan = std::max(makespan, device_time(known, device));
  return frozen_s_ + std::max(makespan, all_reduce_time(known)) + update_time();
}

double CutBound::of_last(std::span<const int> ends) const {
  const int stage = static_cast<int>(ends.size()) - 1;
  const int begin = stage > 0 ? ends[stage - 1] : 0;
  return frozen_s_ + (sums_[ends[stage]].work - sums_[begin].work) * least_factor_ + update_time();
}

// Formula (1).
double CutBound::device_time(const KnownStages& known, const DeviceFacts& device) const {
  double work = 0, warm_up = 0, drain_weights = 0;
  for (const int stage : device.stages) {
    if (!known.has(stage)) continue;
    const StageTimes& times = known.times[stage];
    const int forwards = device.warm_up_forwards[stage];
    work += work_of(stage, times);
    warm_up += forwards * times.forward + (forwards > 0 ? times.first_forward : 0);
    drain_weights += device.drain_weights[stage] * times.weight;
  }
  const double start =
      std::max(path_to(known, device.first_stage) + warm_up, gradient_start(known, device.first_gradient_stage));
  const bool knows_drain = known.has(device.stages.back()) || !device.has_drain_weights;
  const double drain = knows_drain ? path_back(known, device.last_gradient_stage) : 0;
  return start + work - warm_up + std::max(0.0, drain - drain_weights);
}

// Formula (2).
double CutBound::round_trip(const KnownStages& known) {
  return known.to.back() + known.open_to + known.back.back() + known.open_back;
}

// Formula (3).
double CutBound::open_devices_time(const KnownStages& known) const {
  double work = (sums_.back().work - sums_[known.layers].work) * least_factor_;
  double to_first = kNever, back_from_last = kNever;
  int count = 0;
  for (const DeviceFacts& device : devices_) {
    if (known.has(device.stages.back())) continue;
    for (const int stage : device.stages)
      if (known.has(stage)) work += work_of(stage, known.times[stage]);
    to_first = std::min(to_first, path_to(known, device.first_stage));
    const double back = device.has_drain_weights ? 0.0 : path_back(known, device.last_gradient_stage);
    back_from_last = std::min(back_from_last, back);
    ++count;
  }
  if (count == 0) return 0;
  const double mean = work / count;
  const double busiest = busiest_work_.empty() ? mean : busiest_work_[known.count()][known.layers] * least_factor_;
  return to_first + std::max(mean, busiest) + back_from_last;
}

// Formula (4).
double CutBound::cores_time() const { return sums_.back().work * least_factor_ * cores_share_; }

// Formula (5).
double CutBound::all_reduce_time(const KnownStages& known) const {
  const double bytes = sums_.back().bytes * overheads_.sent_share;
  if (!overheads_.all_reduce || bytes <= 0) return 0;
  const double all_reduce = overheads_.all_reduce->at(bytes);
  if (known.count() < stages_ || least_factor_ < 1) return all_reduce;
  // The first gradients are complete during the stage's last B or W.
  double ready = kNever;
  for (int stage = 0; stage < stages_; ++stage) {
    const StageTimes& times = known.times[stage];
    const double last = std::max(times.backward, times.weight);
    ready = std::min(ready, known.to[stage] + work_of(stage, times) - last);
  }
  return std::max(0.0, ready) + all_reduce;
}

// Formula (6).
double CutBound::update_time() const {
  const double bytes = sums_.back().bytes;
  if (!overheads_.update || bytes <= 0) return 0;
  const AffineCost& update = *overheads_.update;
  const double fixed = update.a_s > 0 ? update.a_s : update.a_s * stages_;
  const double moved = update.b_s * bytes / overheads_.updaters;
  return (fixed + moved) / (fixed + moved > 0 ? static_cast<double>(devices_.size()) : 1.0);
}

// For an open stage: the path to the first open one.
double CutBound::path_to(const KnownStages& known, int stage) { return known.to[std::min(stage, known.count())]; }

double CutBound::path_back(const KnownStages& known, int stage) { return known.back[std::min(stage, known.count())]; }

// Earliest time at which a gradient can begin in this stage or a later one.
double CutBound::gradient_start(const KnownStages& known, int stage) const {
  if (!known.has(stage)) return known.to.back() + known.open_to;
  return round_trip(known) - known.back[stage] - gradient_of(stage, known.times[stage]);
}

CutBound::KnownStages CutBound::known_stages(std::span<const int> ends) const {
  KnownStages known{.times = {}, .to = {0}, .back = {0}};
  for (int stage = 0; stage < static_cast<int>(ends.size()); ++stage) {
    const StageTimes times = times_of(known.layers, ends[stage]);
    const double border = border_of(stage, ends[stage]);
    known.to.push_back(known.to.back() + times.forward + border);
    known.back.push_back(known.back.back() + gradient_of(stage, times) + border);
    known.times.push_back(times);
    known.layers = ends[stage];
  }
  const LayerSums &from = sums_[known.layers], &all = sums_.back();
  known.open_to = (all.forward - from.forward) * least_factor_;
  known.open_back = (all.gradient - from.gradient) * least_factor_;
  for (int stage = known.count(); stage + 1 < stages_; ++stage) {
    known.open_to += border_of(stage, std::nullopt);
    known.open_back += border_of(stage, std::nullopt);
  }
  return known;
}

CutBound::StageTimes CutBound::times_of(int begin, int end) const {
  const LayerSums &from = sums_[begin], &to = sums_[end];
  const double alone = to.forward - from.forward + to.backward - from.backward;
  const double slowdown =
      knows_slowdowns_ && alone > 0 ? 1 + ((to.slowed - from.slowed) / alone - 1) * slowdown_share_ : 1;
  const double factor = knows_slowdowns_ ? slowdown * waiting_factor_ : least_factor_;
  return {(to.forward - from.forward) * factor,
          (to.input - from.input) * factor,
          (to.weight - from.weight) * factor,
          (to.backward - from.backward) * factor,
          (to.first_forward - from.first_forward) * factor,
          (to.first_backward - from.first_backward) * factor};
}

double CutBound::work_of(int stage, const StageTimes& times) const {
  const ActionCounts& counts = counts_[stage];
  return counts.forward * times.forward + counts.input * times.input + counts.weight * times.weight +
         counts.backward * times.backward + times.first_forward + times.first_backward;
}

double CutBound::gradient_of(int stage, const StageTimes& times) const {
  const ActionCounts& counts = counts_[stage];
  return std::min(counts.input > 0 ? times.input : kNever, counts.backward > 0 ? times.backward : kNever);
}

// Border cost from a stage to the next one; without the stage's end layer only its latency.
double CutBound::border_of(int stage, std::optional<int> end) const {
  if (overheads_.borders.empty() || stage + 1 >= stages_ || owners_[stage] == owners_[stage + 1]) return 0;
  const LinkCost& border = overheads_.borders[stage];
  return end ? border.at(sent_bytes_[*end - 1]) : border.latency_s;
}

void CutBound::set_contention(std::span<const LayerCost> layers, int devices, Recompute recompute) {
  const double replicas = overheads_.replicas_on_machine;
  const Contention contention{.slowdowns = {}, .contenders = overheads_.contenders, .runnable = overheads_.runnable};
  if (contention.most_beside() > 0 && devices * replicas > 1) {
    double least = kNever;
    for (const LayerCost& layer : layers) least = std::min(least, layer.slowdown);
    slowdown_share_ = contention.share_of_slowdown(replicas);
    // Overlapping pairs are counted twice (contention.cpp).
    const double most_share = (2 * replicas * (devices - 1) + replicas - 1) / contention.most_beside();
    least_factor_ = std::max(0.0, 1 + (least - 1) * (least < 1 ? most_share : slowdown_share_));
    // Recomputation changes the weight of each layer within a stage.
    knows_slowdowns_ = least >= 1 && recompute != Recompute::kOpen;
  }
  waiting_factor_ = contention.waiting(replicas);
  least_factor_ *= waiting_factor_;
  cores_share_ = std::min(1.0, replicas / overheads_.runnable);
}

void CutBound::add_schedule(const pipeline::Schedule& schedule) {
  counts_.resize(stages_);
  for (const auto& actions : schedule.devices) {
    for (const pipeline::Action& action : actions) {
      ActionCounts& counts = counts_[index(action.stage)];
      counts.forward += action.op == Op::kForward ? 1 : 0;
      counts.input += action.op == Op::kInputGradient ? 1 : 0;
      counts.weight += action.op == Op::kWeightGradient ? 1 : 0;
      counts.backward += action.op == Op::kBackward ? 1 : 0;
    }
    add_device(actions);
  }
}

void CutBound::add_device(const std::vector<pipeline::Action>& actions) {
  DeviceFacts device{.stages = {},
                     .first_stage = index(actions.front().stage),
                     .warm_up_forwards = std::vector(stages_, 0),
                     .drain_weights = std::vector(stages_, 0)};
  bool has_gradient = false;
  for (const pipeline::Action& action : actions) {
    const int stage = index(action.stage);
    if (pipeline::makes_input_gradient(action.op)) {
      if (!has_gradient) device.first_gradient_stage = stage;
      device.last_gradient_stage = stage;
      has_gradient = true;
      std::ranges::fill(device.drain_weights, 0);
    }
    if (action.op == Op::kForward && !has_gradient) ++device.warm_up_forwards[stage];
    if (action.op == Op::kWeightGradient) ++device.drain_weights[stage];
  }
  for (int stage = 0; stage < stages_; ++stage)
    if (owners_[stage] == static_cast<int>(devices_.size())) device.stages.push_back(stage);
  device.has_drain_weights = std::ranges::any_of(device.drain_weights, [](int count) { return count > 0; });
  devices_.push_back(std::move(device));
}

void CutBound::add_layers(std::span<const LayerCost> layers, Recompute recompute, double micro_batch) {
  const bool splits = std::ranges::any_of(counts_, [](const ActionCounts& counts) { return counts.input > 0; });
  const bool is_whole = std::ranges::any_of(counts_, [](const ActionCounts& counts) { return counts.backward > 0; });
  sums_.emplace_back();
  for (const LayerCost& layer : layers) {
    const double forward = layer.forward.at(micro_batch);
    const double again = recompute == Recompute::kLayer ? forward : 0;
    const double input = layer.input_gradient.at(micro_batch) + again;
    const double weight = layer.weight_gradient.at(micro_batch);
    const double backward = layer.backward_seconds(micro_batch) + again;
    LayerSums sums = sums_.back();
    sums.forward += forward;
    sums.input += input;
    sums.weight += weight;
    sums.backward += backward;
    sums.gradient += std::min(splits ? input : kNever, is_whole ? backward : kNever);
    sums.work += micro_batches_ * (forward + std::min(splits ? input + weight : kNever, is_whole ? backward : kNever)) +
                 layer.first_forward_s + layer.first_backward_s;
    sums.slowed += (forward + backward) * layer.slowdown;
    sums.first_forward += layer.first_forward_s;
    sums.first_backward += layer.first_backward_s;
    sums.bytes += static_cast<double>(layer.gradient_bytes);
    sums_.push_back(sums);
    sent_bytes_.push_back(static_cast<double>(layer.output_bytes) * micro_batch);
  }
}

void CutBound::find_busiest_stages() {
  if (static_cast<int>(devices_.size()) != stages_) return;
  busiest_work_.assign(stages_ + 1, std::vector<double>(layers_ + 1, kNever));
  busiest_work_[stages_][layers_] = 0;
  for (int stage = stages_ - 1; stage >= 0; --stage) {
    for (int begin = 0; begin < layers_; ++begin) {
      double& least = busiest_work_[stage][begin];
      for (int end = begin + 1; end <= layers_; ++end) {
        const double own = sums_[end].work - sums_[begin].work;
        if (own >= least) break;
        least = std::min(least, std::max(own, busiest_work_[stage + 1][end]));
      }
    }
  }
}

}  // namespace sluice::tune
