// layer_cost: measured cost of one layer on one device (measure/measure_layers.h, layer_bytes.h); planning uses only
// these numbers. Units: seconds and bytes; sizes are samples of a micro-batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

// a_s + b_s * size; the size is samples of a micro-batch unless stated otherwise.
struct AffineCost {
  double a_s = 0;
  double b_s = 0;
  double error = 0;  // root mean square of the relative deviations from the measurements

  [[nodiscard]] double at(double size) const { return a_s + b_s * size; }
};

struct TimeAtSize {
  double size = 0;
  double time_s = 0;

  bool operator==(const TimeAtSize&) const = default;
};

// Interpolates linearly between measured sizes; beyond the largest, the line a_s + b_s * size continues. One line alone
// would be wrong, because kernels change at size thresholds.
struct SizedCost {
  double a_s = 0;
  double b_s = 0;
  double error = 0;
  std::vector<TimeAtSize> points;  // sizes ascending; if empty, only the fitted line is used

  [[nodiscard]] double at(double size) const {
    if (points.empty()) return a_s + b_s * size;
    const auto right = std::ranges::lower_bound(points, size, {}, &TimeAtSize::size);
    if (right == points.end()) return points.back().time_s + b_s * (size - points.back().size);
    const TimeAtSize left = right == points.begin() ? TimeAtSize{0, std::min(a_s, right->time_s)} : *(right - 1);
    return left.time_s + (right->time_s - left.time_s) * (size - left.size) / (right->size - left.size);
  }
  [[nodiscard]] bool is_known() const { return a_s > 0 || b_s > 0 || !points.empty(); }
  [[nodiscard]] SizedCost scaled(double by) const {
    SizedCost all = *this;
    all.a_s *= by, all.b_s *= by;
    for (TimeAtSize& point : all.points) point.time_s *= by;
    return all;
  }
};

struct AffineBytes {
  std::uint64_t fixed = 0;
  std::uint64_t per_sample = 0;

  [[nodiscard]] std::uint64_t at(std::uint64_t samples) const { return fixed + per_sample * samples; }
  bool operator==(const AffineBytes&) const = default;
};

// Peak bytes that a part of a layer's work allocates, with its results and what it saves. Backward has two values:
// autograd frees the output and its gradient after their last use, or they are held from outside.
struct WorkingBytes {
  AffineBytes forward;
  AffineBytes backward;
  AffineBytes input_gradient;
  AffineBytes weight_gradient;
  AffineBytes held_backward{};
  AffineBytes held_input_gradient{};

  bool operator==(const WorkingBytes&) const = default;
};

// The cost of the last layer includes the loss in its forward and input gradient.
struct LayerCost {
  SizedCost forward;
  // Backward work that is never deferred: the input gradient, which the first layer skips, and weight gradients of
  // normalization layers and position embeddings (nn/weight_queue.h).
  SizedCost input_gradient;
  SizedCost weight_gradient;  // deferrable weight gradients: convolutions, linear layers, token tables
  SizedCost backward;         // backward without deferral; if unknown, the sum of the two halves above
  // Additional time in the first micro-batch of a step: weights are transformed once for all micro-batches.
  double first_forward_s = 0;
  double first_backward_s = 0;
  // Factor on forward and backward while all devices of the machine run such layers at once.
  double slowdown = 1;

  std::uint64_t input_bytes = 0;   // activation, per sample
  std::uint64_t output_bytes = 0;  // activation, per sample
  // Bytes that a micro-batch keeps from forward to backward, without the layer's input and the parameters.
  AffineBytes saved_bytes;
  bool saves_input = false;   // the layer's input is kept as well
  bool saves_output = false;  // saved_bytes includes the output
  AffineBytes loss_bytes;     // bytes kept by the loss; 0 except for the last layer
  AffineBytes loss_working;   // peak bytes of the loss and its gradient; 0 except for the last layer
  AffineBytes stash_bytes;    // inputs and output gradients held for deferred weight gradients
  bool stashes_input = false;
  bool stashes_output_gradient = false;  // stash_bytes includes the incoming output gradient
  WorkingBytes working;  // without the loss; 0, like loss_working, if memory is not counted (device/memory.h)
  // Transformed weights (nn/transformed_weights.h), not included in `working`. A pass of several micro-batches keeps
  // them; a pass of one creates them for each use.
  std::uint64_t transformed_bytes = 0;
  // `working` in a pass of one micro-batch. If unknown, add transformed_bytes to `working`.
  std::optional<WorkingBytes> working_once = {};
  std::uint64_t parameter_bytes = 0;
  std::uint64_t buffer_bytes = 0;  // running statistics; each replica has its own
  std::uint64_t gradient_bytes = 0;
  std::uint64_t optimizer_bytes = 0;

  [[nodiscard]] bool is_trained() const { return parameter_bytes > 0; }
  [[nodiscard]] LayerCost times_scaled(double by) const {
    LayerCost all = *this;
    for (SizedCost* const part : {&all.forward, &all.input_gradient, &all.weight_gradient, &all.backward})
      *part = part->scaled(by);
    all.first_forward_s *= by, all.first_backward_s *= by;
    return all;
  }
  [[nodiscard]] double seconds(double samples) const { return forward.at(samples) + backward_seconds(samples); }
  [[nodiscard]] double backward_seconds(double samples) const {
    return backward.is_known() ? backward.at(samples) : input_gradient.at(samples) + weight_gradient.at(samples);
  }
};

}  // namespace sluice
