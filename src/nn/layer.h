// layer: what a model is made of, and the unit at which a model may be cut into stages: a stem, a residual block, half
// a transformer block, a head. A Model is an ordered list of layers; each takes one tensor and gives one. Not here:
// which layers form a stage, devices, optimizers. Threads: a layer instance belongs to one replica and is run by one
// thread at a time. Several micro-batches may be between their forward and backward at once, so a forward pass keeps
// nothing in the layer but deferred batch-norm sums. A forward pass never changes its input in place: stage inputs are
// shared by pointer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::nn {

class BatchNorm2d;
class ReplicaSum;
class TransformedWeights;
class WeightGradQueue;

// What a parameter is to the layer that has it: recipes treat them differently (engine/parameter_groups.h).
enum class ParameterRole : std::uint8_t {
  kWeight,
  kBias,
  kNorm,      // weight and bias of a normalisation
  kPosition,  // position embeddings and class tokens
};

// A leaf that requires a gradient. A stage replaces `value` by a view into its flat buffer (same sizes and strides).
//
// Tied parameters are one parameter of the public model that two layers use, maybe in different stages: GPT-2's token
// embedding and the matrix of its head. One layer owns it; each other has a copy that names the owner's in `tied_to`,
// in the same shape and with the same initial values. A layer computes with its own copy and leaves its own share of
// the gradient there; whoever trains the model (not the layer) has to give all of them the sum of the shares, one
// update, and equal values ever after. Such a copy is no value of the model's own: it is not counted, and the norm of
// the gradient takes the sum once.
struct Parameter {
  std::string name;  // global and public: "layer1.0.conv1.weight"
  at::Tensor value;
  std::string tied_to;  // name of the parameter that this one must equal; empty: none
  ParameterRole role = ParameterRole::kWeight;
  bool is_classifier = false;  // of the classifier, which the model sets (models/model.h)
};

// State that is saved but not trained: running statistics.
struct Buffer {
  std::string name;
  at::Tensor value;
};

enum class BatchNormMode {
  kMicro,     // running statistics take in every micro-batch, as GPipe does
  kDeferred,  // running statistics take in the whole mini-batch of all replicas once, by BatchNorm2d::take_in()
  kSync,      // a micro-batch is normalised by its statistics over all replicas, which running statistics take in
};

// How a 3x3 convolution may be computed on CPUs (winograd.h): by the plain sum, or by Winograd's F(2x2, 3x3), or by
// F(4x4, 3x3) too. It changes the rounding, in the backward pass as well.
enum class Winograd : std::uint8_t { kNone, k2x2, k4x4 };

// The settings of a run that change the numbers of a step, besides those of the model.
struct Numerics {
  BatchNormMode batch_norm = BatchNormMode::kMicro;
  Winograd winograd = Winograd::k2x2;
  double label_smoothing = 0;  // of the loss
};

// All that a forward pass may depend on besides its input.
struct ForwardContext {
  bool training = false;
  Numerics numerics = {};
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  // [1] int64 on the device of the input: stands for `step` where recorded work runs again in other steps
  // (device/graph.h). Undefined: `step` does.
  at::Tensor step_in_memory = {};
  // [micro_batch] int64, positions in the data set: dropout is keyed by (seed, step, sample, layer).
  at::Tensor sample_ids;
  // False when a forward pass is repeated (recompute): running statistics stay as they are.
  bool update_statistics = true;
  // True for a pass that is only timed: its numbers do not matter, so nothing is said of them.
  bool is_measurement = false;
  // For kSync: the other replicas, which run this micro-batch too. Null: there are none.
  ReplicaSum* replicas = nullptr;
  // Where backward leaves the weight gradients (split backward). Null: it computes them itself.
  WeightGradQueue* weight_queue = nullptr;
  // Where weights that have been transformed for a kernel are kept for the next micro-batch. Null: they are not kept.
  TransformedWeights* transformed_weights = nullptr;
};

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }  // "layer1.0", "vit.encoder.layer.3.mlp"
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const ForwardContext& context) = 0;

  // In a fixed order. The pointers live as long as the layer.
  [[nodiscard]] virtual std::vector<Parameter*> parameters() { return {}; }
  [[nodiscard]] virtual std::vector<Buffer*> buffers() { return {}; }

  // In the order in which forward() runs them; as long-lived as the layer.
  [[nodiscard]] virtual std::vector<BatchNorm2d*> batch_norms() { return {}; }

 private:
  std::string name_;
};

}  // namespace sluice::nn
