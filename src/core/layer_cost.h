// layer_cost: what one layer of a model costs on one device, as measured. Planning works on these numbers alone.
// Not here: measuring (measure/measure_layers.h, measure/layer_bytes.h), the fit
// (profiler/affine_fit.h), the file (profiler/layer_profile.h). Units: seconds, bytes, samples of a micro-batch.
// Threads: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

// Seconds that grow with a size, a + b * size: of a micro-batch in samples, where nothing else is said.
struct AffineCost {
  double a_s = 0;    // whatever the size
  double b_s = 0;    // a sample
  double error = 0;  // root mean square of the relative deviations from what was measured

  [[nodiscard]] double at(double size) const { return a_s + b_s * size; }
};

// What was measured of a size, above 0.
struct TimeAtSize {
  double size = 0;
  double time_s = 0;

  bool operator==(const TimeAtSize&) const = default;
};

// Seconds that were measured at some sizes: between them by straight lines, beyond the largest as the line a + b * size
// goes on that was fitted to them. Kernels change at thresholds, so one line alone is wrong over a wide range.
struct SizedCost {
  double a_s = 0;
  double b_s = 0;
  double error = 0;                // of the line
  std::vector<TimeAtSize> points;  // sizes ascending; empty: the line is all that is known

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

// The same of bytes.
struct AffineBytes {
  std::uint64_t fixed = 0;       // a micro-batch
  std::uint64_t per_sample = 0;  // a sample

  [[nodiscard]] std::uint64_t at(std::uint64_t samples) const { return fixed + per_sample * samples; }
  bool operator==(const AffineBytes&) const = default;
};

// Most bytes that a part of a layer's work takes at once, besides what was there when it began: with its results and
// what it keeps. The two ways back as a part of a stage's backward, in which autograd frees the layer's output and its
// gradient when it has used them; and where they are held from outside until the layer is done.
struct WorkingBytes {
  AffineBytes forward;
  AffineBytes backward;  // a whole one
  AffineBytes input_gradient;
  AffineBytes weight_gradient;
  AffineBytes held_backward{};
  AffineBytes held_input_gradient{};

  bool operator==(const WorkingBytes&) const = default;
};

// The loss is part of the last layer's forward and input gradient.
struct LayerCost {
  SizedCost forward;
  // What backward does before it returns when weight gradients are deferred (nn/weight_queue.h): the gradient of the
  // input, which the first layer of a model does not need, and weight gradients that are not deferred (normalisations,
  // position embeddings).
  SizedCost input_gradient;
  SizedCost weight_gradient;  // those that were deferred: of convolutions, linear maps and token tables
  SizedCost backward;         // one that puts nothing off; not known: the sum of its halves
  // More, of the first micro-batch of a step, or its only one: weights are transformed, once for all of them.
  double first_forward_s = 0;
  double first_backward_s = 0;
  // How many times as long forward and backward take while all devices of the machine run such layers.
  double slowdown = 1;

  std::uint64_t input_bytes = 0;   // activation a sample
  std::uint64_t output_bytes = 0;  // activation a sample
  // What a micro-batch keeps from forward to backward besides the layer's input and the parameters.
  AffineBytes saved_bytes;
  bool saves_input = false;    // its input is kept as well
  bool saves_output = false;   // saved_bytes include the output
  AffineBytes loss_bytes;      // of the model's last layer: what the loss after it keeps; 0 for the others
  AffineBytes loss_working;    // and the most that the loss and its gradient take at once
  AffineBytes stash_bytes;     // what weight gradients that are deferred wait with: inputs and output gradients
  bool stashes_input = false;  // stash_bytes include the layer's own input
  bool stashes_output_gradient = false;  // and the gradient that its backward was given, itself
  WorkingBytes working;  // without the loss's; 0 where memory is not counted (device/memory.h), as loss_working
  // Its weights as kernels use them (nn/transformed_weights.h): kept during a pass of several micro-batches, made for
  // each use in a pass of one. Not in `working`.
  std::uint64_t transformed_bytes = 0;
  // What `working` is in a pass of one, in which each use makes its own. Not known: all of them besides.
  std::optional<WorkingBytes> working_once = {};
  std::uint64_t parameter_bytes = 0;
  std::uint64_t buffer_bytes = 0;  // running statistics, of which each replica has its own
  std::uint64_t gradient_bytes = 0;
  std::uint64_t optimizer_bytes = 0;  // of the configured optimizer's state

  [[nodiscard]] bool is_trained() const { return parameter_bytes > 0; }
  [[nodiscard]] LayerCost times_scaled(double by) const {
    LayerCost all = *this;
    for (SizedCost* const part : {&all.forward, &all.input_gradient, &all.weight_gradient, &all.backward})
      *part = part->scaled(by);
    all.first_forward_s *= by, all.first_backward_s *= by;
    return all;
  }
  // Forward and backward of a micro-batch.
  [[nodiscard]] double seconds(double samples) const { return forward.at(samples) + backward_seconds(samples); }
  [[nodiscard]] double backward_seconds(double samples) const {
    return backward.is_known() ? backward.at(samples) : input_gradient.at(samples) + weight_gradient.at(samples);
  }
};

}  // namespace sluice
