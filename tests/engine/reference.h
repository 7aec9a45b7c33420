// reference: what a composition is compared with: one device, the plain chain of Layer::forward_all, autograd of the
// mean loss, and torch.optim's published update rules with plain operations, all in float64. And the small models and
// batches of the comparison.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/compose.h"
#include "engine/state.h"
#include "models/model.h"
#include "nn/layer.h"
#include "optim/optimizer.h"
#include "pipeline/micro_batch.h"

namespace sluice::engine::test {

// 5 classes, 8x8 pixels, patches of 4; 11 tokens, sequences of 6; float64.
[[nodiscard]] models::ModelOptions small_model(const std::string& name, double dropout = 0);

// Different samples with scattered positions in the data set.
[[nodiscard]] pipeline::MicroBatch make_batch(std::int64_t samples, std::int64_t seed = 1);

// Sequences of tokens, some without a target, two of them (where there are enough) without any.
[[nodiscard]] pipeline::MicroBatch make_token_batch(std::int64_t samples, std::int64_t seed = 1);

// The plan, which has no partition yet, on `per_replica` devices, in stages of nearly equal numbers of layers.
// devices: replica by replica, empty = CPU devices of their own.
[[nodiscard]] Composition make_grid(const models::ModelOptions& model, Plan plan, int per_replica,
                                    const optim::OptimizerOptions& optimizer = {.kind = "sgd"},
                                    const std::vector<device::Device>& devices = {});

// One stage a device.
[[nodiscard]] Composition make_grid(const models::ModelOptions& model, const std::string& schedule, int stages,
                                    int replicas, const optim::OptimizerOptions& optimizer = {.kind = "sgd"},
                                    const std::vector<device::Device>& devices = {},
                                    comm::Processes* processes = nullptr);

// What one replica's micro-batches are, replica after replica; empty ones left out.
[[nodiscard]] std::vector<pipeline::MicroBatch> pieces_of(const pipeline::MicroBatch& batch, int replicas, int chunks);

// Of all replicas together: what synchronised batch-norm normalises at once; empty ones left out.
[[nodiscard]] std::vector<pipeline::MicroBatch> joined_micro_batches(const pipeline::MicroBatch& batch, int replicas,
                                                                     int chunks);

struct ReferenceStep {
  double loss = 0;  // mean
  at::Tensor logits;
  storage::TensorMap gradients;  // by parameter name
};

// One device with weights of its own.
class ReferenceModel {
 public:
  explicit ReferenceModel(const models::ModelOptions& options);
  explicit ReferenceModel(pipeline::LayerList layers);
  // Parameters and buffers by name.
  void load(const storage::TensorMap& tensors);

  // Forward and backward of the mean loss over all `pieces`, each passed alone (a batch-norm normalises by the piece).
  ReferenceStep step(const std::vector<pipeline::MicroBatch>& pieces, const nn::ForwardContext& context);
  // One of the gradients of the last step().
  void update(const optim::OptimizerOptions& optimizer, double lr, double clip_norm = 0);
  // step(), then update(), with the gradient scaled to a norm of at most `clip_norm` (0: as it is).
  double train(const pipeline::MicroBatch& batch, const nn::ForwardContext& context,
               const optim::OptimizerOptions& optimizer, double lr, double clip_norm = 0);
  [[nodiscard]] storage::TensorMap parameters() const;
  [[nodiscard]] storage::TensorMap tensors() const;  // parameters and buffers

 private:
  pipeline::LayerList layers_;
  std::vector<nn::Parameter*> parameters_;            // tied ones once
  std::map<std::string, storage::TensorMap> states_;  // of the optimizer
  std::int64_t updates_ = 0;
};

// Step number `step` (from 1) of torch.optim's SGD, RMSprop, Adam or AdamW on one parameter; `state` starts empty.
void reference_update(const optim::OptimizerOptions& options, double lr, std::int64_t step, at::Tensor parameter,
                      at::Tensor gradient, storage::TensorMap& state);

// The largest |ours - theirs| / max(|theirs|, 1e-3 |all of theirs|) of norms, and the tensor it belongs to.
struct WorstError {
  double error = 0;
  std::string name;
};
[[nodiscard]] WorstError worst_error(const storage::TensorMap& ours, const storage::TensorMap& theirs);

}  // namespace sluice::engine::test
