#include "tune/memory.h"

#include <algorithm>
#include <vector>

#include "core/check.h"

namespace sluice::tune {
namespace {

using pipeline::StageBytes;

class MicroBatchBytes {
 public:
  MicroBatchBytes(std::span<const LayerCost> layers, std::uint64_t samples, const StageRole& role)
      : layers_(layers), samples_(samples), role_(role) {
    check(!layers.empty(), "a stage with at least one layer");
  }

  [[nodiscard]] std::size_t size() const { return layers_.size(); }
  [[nodiscard]] std::uint64_t input() const { return keeps_input() ? layers_.front().input_bytes * samples_ : 0; }
  [[nodiscard]] std::uint64_t output(std::size_t i) const { return layers_[i].output_bytes * samples_; }
  [[nodiscard]] std::uint64_t stash(std::size_t i) const { return layers_[i].stash_bytes.at(samples_); }
  [[nodiscard]] std::uint64_t kept_by(std::size_t i) const {
    if (role_.recomputes) return i > 0 && is_trained_from(i) ? output(i - 1) : 0;
    const bool next_keeps_output = i + 1 < size() && layers_[i + 1].saves_input && !layers_[i].saves_output;
    return layers_[i].saved_bytes.at(samples_) + (next_keeps_output ? output(i) : 0);
  }
  [[nodiscard]] std::uint64_t kept_before(std::size_t end) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < end; ++i) bytes += kept_by(i);
    return bytes;
  }
  // The previous layer's output during this layer's forward, if no layer saves it.
  [[nodiscard]] std::uint64_t passing_input(std::size_t i) const {
    if (i == 0) return 0;
    const bool is_kept = !role_.recomputes && (layers_[i - 1].saves_output || layers_[i].saves_input);
    return is_kept ? 0 : output(i - 1);
  }
  // The model's output during the loss, if no layer saves it.
  [[nodiscard]] std::uint64_t passing_output() const {
    return layers_.back().saves_output && !role_.recomputes ? 0 : output(size() - 1);
  }
  [[nodiscard]] std::uint64_t loss_working() const { return at(layers_.back().loss_working); }
  [[nodiscard]] std::uint64_t kept_by_loss() const {
    if (!role_.is_last) return 0;
    return role_.recomputes ? output(size() - 1) : layers_.back().loss_bytes.at(samples_);
  }
  [[nodiscard]] std::uint64_t stash_from(std::size_t begin) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = begin; i < size(); ++i) bytes += stash(i);
    return bytes;
  }
  [[nodiscard]] std::uint64_t at(const AffineBytes& bytes) const { return bytes.at(samples_); }
  [[nodiscard]] const LayerCost& layer(std::size_t i) const { return layers_[i]; }
  [[nodiscard]] std::uint64_t working(std::size_t i, AffineBytes WorkingBytes::*part) const {
    if (!role_.one_micro_batch) return at(layers_[i].working.*part);
    if (layers_[i].working_once) return at((*layers_[i].working_once).*part);
    return at(layers_[i].working.*part) + layers_[i].transformed_bytes;
  }

 private:
  [[nodiscard]] bool is_trained_from(std::size_t i) const {
    return !role_.is_first || std::ranges::any_of(layers_.first(i + 1), &LayerCost::is_trained);
  }
  [[nodiscard]] bool keeps_input() const {
    if (!role_.is_first) return true;
    return role_.recomputes ? layers_.front().is_trained() : layers_.front().saves_input;
  }

  std::span<const LayerCost> layers_;
  std::uint64_t samples_;
  StageRole role_;
};

class WorstMoments {
 public:
  WorstMoments(const MicroBatchBytes& bytes, const StageRole& role, bool shares_memory)
      : bytes_(bytes), role_(role), own_input_(shares_memory ? 0 : bytes.input()), shares_memory_(shares_memory) {}

  [[nodiscard]] std::uint64_t forward() const {
    // The gradient of the loss is made in the backward, except if the stage recomputes.
    const std::uint64_t at_loss = role_.recomputes ? bytes_.loss_working() : bytes_.kept_by_loss();
    std::uint64_t most =
        role_.is_last ? own_input_ + bytes_.kept_before(bytes_.size()) + bytes_.passing_output() + at_loss : 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      most = std::max(most, own_input_ + bytes_.kept_before(i) + bytes_.passing_input(i) +
                                bytes_.working(i, &WorkingBytes::forward));
    }
    return most;
  }
  [[nodiscard]] std::uint64_t backward() const {
    return of_backward(&WorkingBytes::backward, &WorkingBytes::held_backward, /*splits=*/false);
  }
  [[nodiscard]] std::uint64_t input_gradient() const {
    return of_backward(&WorkingBytes::input_gradient, &WorkingBytes::held_input_gradient, /*splits=*/true);
  }
  [[nodiscard]] std::uint64_t weight_gradient() const {
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      most = std::max(most, bytes_.at(bytes_.layer(i).working.weight_gradient));
    return most;
  }

 private:
  // held: used if the device thread (received gradient) or a recomputing stage also references the output gradient.
  [[nodiscard]] std::uint64_t of_backward(AffineBytes WorkingBytes::*part, AffineBytes WorkingBytes::*held,
                                          bool splits) const {
    // A stage that recomputes already has the gradient of the loss.
    const bool begins_with_loss = role_.is_last && !role_.recomputes;
    std::uint64_t most = begins_with_loss ? own_input_ + bytes_.kept_before(bytes_.size()) + bytes_.loss_working() : 0;
    for (std::size_t i = bytes_.size(); i-- > 0;) {
      const LayerCost& layer = bytes_.layer(i);
      const bool is_sent = i + 1 == bytes_.size() && !role_.is_last;
      std::uint64_t working = bytes_.working(i, role_.recomputes || is_sent ? held : part);
      if (role_.recomputes) {
        const std::uint64_t kept = bytes_.at(layer.saved_bytes) + (layer.saves_output ? 0 : bytes_.output(i));
        working = std::max(bytes_.working(i, &WorkingBytes::forward), kept + working);
      }
      // The last layer's output gradient belongs to the next stage unless that stage sent a copy.
      const std::uint64_t gradient = shares_memory_ && is_sent ? 0 : bytes_.output(i);
      const std::uint64_t stash = splits ? bytes_.stash_from(i + 1) : 0;
      most = std::max(most, own_input_ + bytes_.kept_before(i + 1) + gradient + stash + working);
    }
    return most;
  }

  const MicroBatchBytes& bytes_;
  StageRole role_;
  std::uint64_t own_input_;
  bool shares_memory_;
};

std::int64_t as_signed(std::uint64_t bytes) { return static_cast<std::int64_t>(bytes); }

// For shared memory: charges the output and the input gradient to this stage while neighbours use them, and does not
// charge tensors of neighbours.
void charge_makers(std::span<const LayerCost> layers, std::uint64_t samples, const StageRole& role, StageBytes& stage) {
  const std::int64_t input = as_signed(layers.front().input_bytes * samples);
  const std::int64_t output = as_signed(layers.back().output_bytes * samples);
  if (!role.is_first)
    (role.previous_stashes_gradient ? stage.lent_gradient.until_last : stage.lent_gradient.until_gradient) = input;
  if (layers.front().stashes_input) stage.stash -= input;
  if (!role.is_last) {
    (role.next_stashes_input ? stage.lent_output.until_last : stage.lent_output.until_gradient) = output;
    if (layers.back().saves_output && !role.recomputes) stage.activation -= output;
    if (layers.back().stashes_output_gradient) stage.stash -= output;
  }
  stage.stash = std::max<std::int64_t>(stage.stash, 0);  // rounding: each term is a separate affine fit
}

}  // namespace

StageBytes live_bytes(std::span<const LayerCost> layers, std::uint64_t samples, const StageRole& role) {
  const MicroBatchBytes bytes(layers, samples, role);
  return {.activation = as_signed(bytes.input() + bytes.kept_before(bytes.size()) + bytes.kept_by_loss()),
          .stash = as_signed(bytes.stash_from(0))};
}

StageBytes device_bytes(std::span<const LayerCost> layers, std::uint64_t samples, const StageRole& role,
                        bool shares_memory) {
  const MicroBatchBytes bytes(layers, samples, role);
  StageBytes stage = live_bytes(layers, samples, role);
  for (const LayerCost& layer : layers) {
    const std::uint64_t transformed = role.one_micro_batch ? 0 : layer.transformed_bytes;
    stage.fixed += as_signed(layer.parameter_bytes + layer.buffer_bytes + layer.gradient_bytes + layer.optimizer_bytes +
                             transformed);
  }
  const std::int64_t kept =
      as_signed((shares_memory ? 0 : bytes.input()) + bytes.kept_before(bytes.size()) + bytes.kept_by_loss());
  stage.activation = kept;
  if (shares_memory) charge_makers(layers, samples, role, stage);
  const WorstMoments worst(bytes, role, shares_memory);
  // Working bytes of a backward beyond the activation, which exists when the backward begins.
  const auto beyond = [&](std::uint64_t moment) { return std::max<std::int64_t>(as_signed(moment) - kept, 0); };
  stage.forward_working = std::max(as_signed(worst.forward()), stage.activation + stage.lent_output.total());
  stage.backward_working = beyond(worst.backward());
  stage.input_working = beyond(worst.input_gradient());
  stage.weight_working = as_signed(worst.weight_gradient());
  return stage;
}

}  // namespace sluice::tune
