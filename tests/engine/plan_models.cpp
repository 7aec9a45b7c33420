#include "engine/plan_models.h"

#include <ATen/ATen.h>

#include "core/concat.h"
#include "engine/reference.h"
#include "nn/batch_norm.h"
#include "nn/conv.h"
#include "nn/linear.h"

namespace sluice::engine::test {
namespace {

constexpr int kBlocks = kPlanLayers - 1;  // of "residual", before its head

nn::LayerOptions options_of(at::ScalarType dtype) { return {.seed = 3, .dtype = dtype}; }

// tanh(W x + b) of the flattened input.
class DenseLayer final : public nn::RegisteredLayer {
 public:
  DenseLayer(const std::string& name, std::int64_t in, std::int64_t out, at::ScalarType dtype)
      : RegisteredLayer(name, options_of(dtype)),
        linear_(registry_, name, in, out, nn::LinearInit::torch_default(in)) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return at::tanh(linear_(x.flatten(1), context));
  }

 private:
  nn::Linear linear_;
};

// x + relu(bn(conv(x))), without x where the channels change; a batch-norm and a skip in each.
class ResidualLayer final : public nn::RegisteredLayer {
 public:
  ResidualLayer(const std::string& name, std::int64_t in, std::int64_t out, at::ScalarType dtype)
      : RegisteredLayer(name, options_of(dtype)),
        skips_(in == out),
        conv_(registry_, name + ".conv", {.in = in, .out = out, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone),
        norm_(registry_, name + ".bn", out) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor y = norm_(conv_(x, context), context, nn::Activation::kRelu);
    return skips_ ? x + y : y;
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override { return {&norm_}; }

 private:
  bool skips_;
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
};

class MeanLayer final : public nn::RegisteredLayer {
 public:
  MeanLayer(const std::string& name, std::int64_t in, std::int64_t out, at::ScalarType dtype)
      : RegisteredLayer(name, options_of(dtype)),
        linear_(registry_, name, in, out, nn::LinearInit::torch_default(in)) {}
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return linear_(x.mean(at::IntArrayRef{2, 3}), context);
  }

 private:
  nn::Linear linear_;
};

// What each batch-norm is given when `piece` is passed at once: [block].
std::vector<at::Tensor> inputs_of_norms(const storage::TensorMap& model, const pipeline::MicroBatch& piece) {
  std::vector<at::Tensor> inputs;
  at::Tensor x = piece.inputs[0].to(at::kDouble);
  for (int block = 0; block < kBlocks; ++block) {
    const auto tensor = [&](const char* name) { return model.at(concat("block", block, ".", name)).to(at::kDouble); };
    const at::Tensor y = at::conv2d(x, tensor("conv.weight"), {}, 1, 1);
    inputs.push_back(y);
    const auto [variance, mean] = at::var_mean(y, at::IntArrayRef{0, 2, 3}, /*unbiased=*/false, /*keepdim=*/true);
    const auto of_channels = [&](const char* name) { return tensor(name).view({1, -1, 1, 1}); };
    const at::Tensor normalised = (y - mean) / (variance + 1e-5).sqrt();
    const at::Tensor out = at::relu(normalised * of_channels("bn.weight") + of_channels("bn.bias"));
    x = x.size(1) == out.size(1) ? x + out : out;
  }
  return inputs;
}

// [piece][block]
using NormInputs = std::vector<std::vector<at::Tensor>>;

NormInputs inputs_of_norms(const storage::TensorMap& model, const std::vector<pipeline::MicroBatch>& pieces) {
  NormInputs inputs;
  for (const auto& piece : pieces) inputs.push_back(inputs_of_norms(model, piece));
  return inputs;
}

struct Running {
  at::Tensor mean, variance;
  std::int64_t batches = 0;

  void take_in(const at::Tensor& x) {
    mean = 0.9 * mean + 0.1 * x.mean(at::IntArrayRef{0, 2, 3});
    variance = 0.9 * variance + 0.1 * x.var(at::IntArrayRef{0, 2, 3}, /*unbiased=*/true);
    ++batches;
  }
};

Running after_each(Running running, const NormInputs& pieces, int block) {
  for (const auto& piece : pieces) running.take_in(piece[block]);
  return running;
}

Running after_all_at_once(Running running, const NormInputs& pieces, int block) {
  std::vector<at::Tensor> all;
  for (const auto& piece : pieces) all.push_back(piece[block]);
  running.take_in(at::cat(all));
  return running;
}

}  // namespace

pipeline::LayerList make_plan_layers(const std::string& model, at::ScalarType dtype) {
  constexpr std::int64_t kWidth = 6, kClasses = 5, kPixels = 3 * 8 * 8;
  pipeline::LayerList layers;
  if (model == "mlp") {
    for (int i = 0; i < kPlanLayers; ++i) {
      layers.push_back(std::make_unique<DenseLayer>(concat("fc", i), i == 0 ? kPixels : kWidth,
                                                    i + 1 == kPlanLayers ? kClasses : kWidth, dtype));
    }
    return layers;
  }
  if (model == "residual") {
    for (int i = 0; i < kBlocks; ++i)
      layers.push_back(std::make_unique<ResidualLayer>(concat("block", i), i == 0 ? 3 : kWidth, kWidth, dtype));
    layers.push_back(std::make_unique<MeanLayer>("fc", kWidth, kClasses, dtype));
    return layers;
  }
  models::ModelOptions options = small_model(model, /*dropout=*/0.1);
  options.dtype = dtype;
  if (model == "gpt2") options.size = "tiny";  // nano has 6 layers
  return models::make_model(options).layers;
}

storage::TensorMap residual_statistics(const storage::TensorMap& before, const pipeline::MicroBatch& batch,
                                       int replicas, int chunks, nn::BatchNormMode mode) {
  const bool joins = mode == nn::BatchNormMode::kSync;
  const NormInputs whole = inputs_of_norms(
      before, joins ? joined_micro_batches(batch, replicas, chunks) : pieces_of(batch, replicas, chunks));
  const std::vector<pipeline::MicroBatch> shares = pipeline::split(batch, replicas);
  std::vector<NormInputs> of_replicas;
  for (const auto& share : shares) of_replicas.push_back(inputs_of_norms(before, pieces_of(share, 1, chunks)));
  storage::TensorMap after;
  for (int block = 0; block < kBlocks; ++block) {
    const auto name = [&](const char* buffer) { return concat("block", block, ".bn.", buffer); };
    const Running start{before.at(name("running_mean")).to(at::kDouble), before.at(name("running_var")).to(at::kDouble),
                        before.at(name("num_batches_tracked")).item<std::int64_t>()};
    Running end = start;
    if (mode == nn::BatchNormMode::kMicro) {
      end = {at::zeros_like(start.mean), at::zeros_like(start.variance),
             after_each(start, of_replicas[0], block).batches};
      for (int r = 0; r < replicas; ++r) {
        const Running own = after_each(start, of_replicas[r], block);
        const double share = static_cast<double>(shares[r].samples()) / static_cast<double>(batch.samples());
        end.mean += share * own.mean;
        end.variance += share * own.variance;
      }
    } else {
      end = joins ? after_each(start, whole, block) : after_all_at_once(start, whole, block);
    }
    after[name("running_mean")] = end.mean;
    after[name("running_var")] = end.variance;
    after[name("num_batches_tracked")] = at::full({}, end.batches, at::kLong);
  }
  return after;
}

}  // namespace sluice::engine::test
