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
  double least = kNever;
  for (const LayerCost& layer : layers) least = std::min(least, layer.slowdown);
  const auto devices = static_cast<double>(schedule.devices.size());
  const double replicas = overheads.replicas_on_machine;
  const Contention contention{.slowdowns = {}, .contenders = overheads.contenders, .runnable = overheads.runnable};
  if (contention.most_beside() > 0 && devices * replicas > 1) {
    others_ = contention.share_of_slowdown(replicas);
    // Overlapping pairs are counted twice (contention.cpp).
    const double most_others = (2 * replicas * (devices - 1) + replicas - 1) / contention.most_beside();
    least_slowdown_ = std::max(0.0, 1 + (least - 1) * (least < 1 ? most_others : others_));
    // Recomputation changes the weight of each layer within a stage.
    knows_slowdowns_ = least >= 1 && recompute != Recompute::kOpen;
  }
  waiting_ = contention.waiting(replicas);
  least_slowdown_ *= waiting_;
  cores_share_ = std::min(1.0, replicas / overheads.runnable);
  add_schedule(schedule);
  add_layers(layers, recompute, micro_batch);
  divide_rest();
}

void CutBound::add_schedule(const pipeline::Schedule& schedule) {
  counts_.resize(stages_);
  for (const auto& actions : schedule.devices) {
    for (const pipeline::Action& action : actions) {
      Counts& counts = counts_[index(action.stage)];
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
                     .forwards_before = std::vector(stages_, 0),
                     .weights_after = std::vector(stages_, 0)};
  bool has_gradient = false;
  for (const pipeline::Action& action : actions) {
    const int stage = index(action.stage);
    if (pipeline::makes_input_gradient(action.op)) {
      if (!has_gradient) device.first_gradient_stage = stage;
      device.last_gradient_stage = stage;
      has_gradient = true;
      std::ranges::fill(device.weights_after, 0);
    }
    if (action.op == Op::kForward && !has_gradient) ++device.forwards_before[stage];
    if (action.op == Op::kWeightGradient) ++device.weights_after[stage];
  }
  for (int stage = 0; stage < stages_; ++stage)
    if (owners_[stage] == static_cast<int>(devices_.size())) device.stages.push_back(stage);
  device.has_weights_after = std::ranges::any_of(device.weights_after, [](int count) { return count > 0; });
  devices_.push_back(std::move(device));
}

void CutBound::add_layers(std::span<const LayerCost> layers, Recompute recompute, double micro_batch) {
  const bool splits = std::ranges::any_of(counts_, [](const Counts& counts) { return counts.input > 0; });
  const bool is_whole = std::ranges::any_of(counts_, [](const Counts& counts) { return counts.backward > 0; });
  sums_.emplace_back();
  for (const LayerCost& layer : layers) {
    const double forward = layer.forward.at(micro_batch);
    const double again = recompute == Recompute::kLayer ? forward : 0;
    const double input = layer.input_gradient.at(micro_batch) + again;
    const double weight = layer.weight_gradient.at(micro_batch);
    const double backward = layer.backward_seconds(micro_batch) + again;
    Sums sums = sums_.back();
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

void CutBound::divide_rest() {
  if (static_cast<int>(devices_.size()) != stages_) return;
  least_busiest_.assign(stages_ + 1, std::vector<double>(layers_ + 1, kNever));
  least_busiest_[stages_][layers_] = 0;
  for (int stage = stages_ - 1; stage >= 0; --stage) {
    for (int begin = 0; begin < layers_; ++begin) {
      double& least = least_busiest_[stage][begin];
      for (int end = begin + 1; end <= layers_; ++end) {
        const double own = sums_[end].work - sums_[begin].work;
        if (own >= least) break;
        least = std::min(least, std::max(own, least_busiest_[stage + 1][end]));
      }
    }
  }
}

CutBound::StageTimes CutBound::times_of(int begin, int end) const {
  const Sums &from = sums_[begin], &to = sums_[end];
  const double alone = to.forward - from.forward + to.backward - from.backward;
  const double slowdown = knows_slowdowns_ && alone > 0 ? 1 + ((to.slowed - from.slowed) / alone - 1) * others_ : 1;
  const double stretch = knows_slowdowns_ ? slowdown * waiting_ : least_slowdown_;
  return {(to.forward - from.forward) * stretch,
          (to.input - from.input) * stretch,
          (to.weight - from.weight) * stretch,
          (to.backward - from.backward) * stretch,
          (to.first_forward - from.first_forward) * stretch,
          (to.first_backward - from.first_backward) * stretch};
}

double CutBound::work_of(int stage, const StageTimes& times) const {
  const Counts& counts = counts_[stage];
  return counts.forward * times.forward + counts.input * times.input + counts.weight * times.weight +
         counts.backward * times.backward + times.first + times.first_backward;
}

double CutBound::gradient_of(int stage, const StageTimes& times) const {
  const Counts& counts = counts_[stage];
  return std::min(counts.input > 0 ? times.input : kNever, counts.backward > 0 ? times.backward : kNever);
}

// Border cost from a stage to the next one. If its end is unknown (-1), the latency is a lower bound.
double CutBound::hop(int stage, int end) const {
  if (overheads_.borders.empty() || stage + 1 >= stages_ || owners_[stage] == owners_[stage + 1]) return 0;
  return end < 0 ? overheads_.borders[stage].latency_s : overheads_.borders[stage].at(sent_bytes_[end - 1]);
}

CutBound::Known CutBound::known(std::span<const int> ends) const {
  Known known{.times = {}, .to = {0}, .back = {0}};
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int stage = static_cast<int>(s);
    known.times.push_back(times_of(known.layers, ends[s]));
    known.layers = ends[s];
    const double border = hop(stage, ends[s]);
    known.to.push_back(known.to.back() + known.times.back().forward + border);
    known.back.push_back(known.back.back() + gradient_of(stage, known.times.back()) + border);
  }
  const Sums &from = sums_[known.layers], &all = sums_.back();
  known.rest_to = (all.forward - from.forward) * least_slowdown_;
  known.rest_back = (all.gradient - from.gradient) * least_slowdown_;
  for (int stage = static_cast<int>(ends.size()); stage + 1 < stages_; ++stage) {
    known.rest_to += hop(stage, -1);
    known.rest_back += hop(stage, -1);
  }
  return known;
}

// For an unknown stage: the path to the first unknown one.
double CutBound::way_to(const Known& known, int stage) const {
  return known.to[std::min(static_cast<std::size_t>(stage), known.times.size())];
}

double CutBound::way_back(const Known& known, int stage) const {
  return known.back[std::min(static_cast<std::size_t>(stage), known.times.size())];
}

// Earliest time at which a micro-batch's gradient can begin in this stage or a later one.
double CutBound::turn(const Known& known, int stage) const {
  const double last = known.to.back() + known.rest_to;
  if (stage >= static_cast<int>(known.times.size())) return last;
  return last + known.back.back() + known.rest_back - known.back[stage] - gradient_of(stage, known.times[stage]);
}

double CutBound::of_device(const Known& known, const DeviceFacts& device) const {
  double work = 0, before = 0, after = 0;
  for (const int stage : device.stages) {
    if (stage >= static_cast<int>(known.times.size())) continue;
    const StageTimes& times = known.times[stage];
    const int forwards = device.forwards_before[stage];
    work += work_of(stage, times);
    before += forwards * times.forward + (forwards > 0 ? times.first : 0);
    after += device.weights_after[stage] * times.weight;
  }
  const bool is_known = device.stages.back() < static_cast<int>(known.times.size());
  const double start = std::max(way_to(known, device.first_stage) + before, turn(known, device.first_gradient_stage));
  const double back = is_known || !device.has_weights_after ? way_back(known, device.last_gradient_stage) : 0;
  return start + work - before + std::max(0.0, back - after);
}

double CutBound::of_rest(const Known& known) const {
  double work = (sums_.back().work - sums_[known.layers].work) * least_slowdown_;
  double first = kNever, last = kNever;
  int count = 0;
  for (const DeviceFacts& device : devices_) {
    if (device.stages.back() < static_cast<int>(known.times.size())) continue;
    for (const int stage : device.stages)
      if (stage < static_cast<int>(known.times.size())) work += work_of(stage, known.times[stage]);
    first = std::min(first, way_to(known, device.first_stage));
    last = std::min(last, device.has_weights_after ? 0.0 : way_back(known, device.last_gradient_stage));
    ++count;
  }
  if (count == 0) return 0;
  const double mean = work / count;
  if (least_busiest_.empty()) return first + mean + last;
  const double busiest = least_busiest_[known.times.size()][known.layers] * least_slowdown_;
  return first + std::max(mean, busiest) + last;
}

double CutBound::of_sums(const Known& known) const {
  const double bytes = sums_.back().bytes * overheads_.sent_share;
  if (!overheads_.all_reduce || bytes <= 0) return 0;
  const double sums = overheads_.all_reduce->at(bytes);
  if (static_cast<int>(known.times.size()) < stages_ || least_slowdown_ < 1) return sums;
  // The first gradients are complete during the stage's last B or W.
  double ready = kNever;
  for (int stage = 0; stage < stages_; ++stage) {
    const StageTimes& times = known.times[stage];
    const double last = std::max(times.backward, times.weight);
    ready = std::min(ready, known.to[stage] + work_of(stage, times) - last);
  }
  return std::max(0.0, ready) + sums;
}

double CutBound::of_update() const {
  const double bytes = sums_.back().bytes;
  if (!overheads_.update || bytes <= 0) return 0;
  const AffineCost& update = *overheads_.update;
  const double fixed = update.a_s > 0 ? update.a_s : update.a_s * stages_;
  const double moved = update.b_s * bytes / overheads_.updaters;
  return (fixed + moved) / (fixed + moved > 0 ? static_cast<double>(devices_.size()) : 1.0);
}

double CutBound::of(std::span<const int> ends) const {
  const Known known = this->known(ends);
  double makespan = std::max(of_rest(known), known.to.back() + known.rest_to + known.back.back() + known.rest_back);
  for (const DeviceFacts& device : devices_) makespan = std::max(makespan, of_device(known, device));
  makespan = std::max(makespan, sums_.back().work * least_slowdown_ * cores_share_);
  return frozen_s_ + std::max(makespan, of_sums(known)) + of_update();
}

double CutBound::of_last(std::span<const int> ends) const {
  const int stage = static_cast<int>(ends.size()) - 1;
  const int begin = stage > 0 ? ends[stage - 1] : 0;
  return frozen_s_ + (sums_[ends[stage]].work - sums_[begin].work) * least_slowdown_ + of_update();
}

}  // namespace sluice::tune
