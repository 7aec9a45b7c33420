// layer: the smallest unit at which a model can be cut into stages. A model is an ordered list of layers. What passes
// between two of them, a border, is a list of tensors: the activations, and what later layers need besides (masks,
// positions). Floating-point tensors carry a gradient; integers and booleans do not. A tensor may be undefined.
// Threads: one thread at a time runs a layer. Several micro-batches may be between forward and backward, so forward
// stores nothing in the layer except deferred batch-norm sums. Forward never changes its input, which stages share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::nn {

using Tensors = std::vector<at::Tensor>;

class BatchNorm2d;
class ReplicaSum;
class TransformedWeights;
class WeightGradQueue;

enum class ParameterRole : std::uint8_t {
  kWeight,
  kBias,
  kNorm,
  kPosition,  // position embeddings and class tokens
};

// A leaf tensor that requires a gradient. A stage replaces `value` by a view into its flat buffer, with equal strides.
// Tied parameters are one parameter of the public model that two layers use, possibly in different stages. One layer
// owns it; the others have a copy that names the owner's parameter in `tied_to`, and leave their share of the gradient
// in it. The trainer must give all copies the sum of the shares and one update. Copies are not counted.
struct Parameter {
  std::string name;  // public name, unique in the model: "layer1.0.conv1.weight"
  at::Tensor value;
  std::string tied_to;  // name of the parameter that this one must equal; empty: not tied
  ParameterRole role = ParameterRole::kWeight;
  bool is_classifier = false;  // set by the model for its classifier (models/model.h)
  // More names of the same tensor in the public model. Files have it under each.
  std::vector<std::string> other_names = {};
};

// State that is saved but not trained, for example running statistics.
struct Buffer {
  std::string name;
  at::Tensor value;
  std::vector<std::string> other_names = {};  // as Parameter::other_names
  bool has_copies = false;                    // in other layers, so that it keeps the value it was made with
};

// A linear layer that an adapter may be added to (lora.h).
struct LinearInfo {
  std::string name;
  std::int64_t in = 0, out = 0;
  bool is_transposed = false;  // its weight is [in, out]
};

enum class BatchNormMode {
  kMicro,     // running statistics take in every micro-batch, as in GPipe
  kDeferred,  // running statistics take in the whole mini-batch of all replicas at once, by BatchNorm2d::take_in()
  kSync,      // a micro-batch is normalised by its statistics over all replicas, which update the running statistics
};

// Fastest algorithm allowed for 3x3 convolutions on CPUs (winograd.h): the plain sum, Winograd's F(2x2, 3x3), or also
// F(4x4, 3x3). The choice changes the rounding of forward and backward.
enum class Winograd : std::uint8_t { kNone, k2x2, k4x4 };

struct Numerics {
  BatchNormMode batch_norm = BatchNormMode::kMicro;
  Winograd winograd = Winograd::k2x2;
  double label_smoothing = 0;
};

struct ForwardContext {
  bool training = false;
  Numerics numerics = {};
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  // [1] int64 on the device of the input: replaces `step`, if defined, in a recorded CUDA graph (device/graph.h).
  at::Tensor step_in_memory = {};
  // [micro_batch] int64, positions in the data set; they key dropout.
  at::Tensor sample_ids;
  // Number of the micro-batch over all replicas of the step: running statistics are kept by it until
  // BatchNorm2d::collect(). -1: in mode kMicro they take in each micro-batch at once.
  std::int64_t micro_batch = -1;
  // False when a forward pass is repeated (recomputation): running statistics must not change.
  bool update_statistics = true;
  // Only timed: the values do not matter and cause no warnings.
  bool is_measurement = false;
  // Used by kSync: sums over all replicas that run this micro-batch. Null: there are no other replicas.
  ReplicaSum* replicas = nullptr;
  // Receives the weight gradients that backward defers (split backward). Null: backward computes them itself.
  WeightGradQueue* weight_queue = nullptr;
  // [N, T] int64 on the CPU, of the last stage: rows without a target need no logits (rows_with_targets()). Undefined:
  // all logits are wanted.
  at::Tensor targets = {};
  // Keeps weights that were transformed for a kernel, for the next micro-batch. Null: they are not kept.
  TransformedWeights* transformed_weights = nullptr;
};

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }  // "layer1.0", "vit.encoder.layer.3.mlp"
  // A layer overrides one of the two. By default it maps the first tensor of a border and passes the others on.
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input, const ForwardContext& context) {
    return forward_all({input}, context).front();
  }
  [[nodiscard]] virtual Tensors forward_all(const Tensors& inputs, const ForwardContext& context) {
    Tensors outputs = inputs;
    outputs.front() = forward(inputs.front(), context);
    return outputs;
  }

  // In a fixed order. The pointers are valid as long as the layer lives.
  [[nodiscard]] virtual std::vector<Parameter*> parameters() { return {}; }
  [[nodiscard]] virtual std::vector<Buffer*> buffers() { return {}; }
  [[nodiscard]] virtual std::vector<LinearInfo> linears() const { return {}; }

  // A layer from a file says how often it calls which of our layers ("linear") and of LibTorch's operators
  // ("aten::cat").
  [[nodiscard]] virtual std::map<std::string, int> calls() const { return {}; }

  // In the order in which forward() runs them. The pointers are valid as long as the layer lives.
  [[nodiscard]] virtual std::vector<BatchNorm2d*> batch_norms() { return {}; }

 private:
  std::string name_;
};

}  // namespace sluice::nn
