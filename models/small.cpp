// small: models without batch norm, for parity tests and quick runs. Every fc and conv is a layer.
// - mlp: flatten, fc1, ReLU, fc2, ReLU, fc3.
// - toy_cnn: conv1, conv2, conv3 (3x3, ReLU, the last two with stride 2), pool, fc.
#include "models/families.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace sluice::models {
namespace {

constexpr std::int64_t kMlpHidden = 128;

enum class Input { kFlatten, kPool };
enum class Output { kLogits, kHidden };

// [N, ...] -> [N, out]: flattens or averages over pixels, then applies a linear map and, if hidden, ReLU and dropout.
class Dense : public nn::RegisteredLayer {
 public:
  struct Shape {
    std::int64_t in, out;
    Input input;
    Output output;
    double dropout = 0;
  };
  Dense(const std::string& name, const Shape& shape, const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        shape_(shape),
        linear_(registry_, name, shape.in, shape.out, nn::LinearInit::torch_default(shape.in)) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor y = linear_(shape_.input == Input::kPool ? x.mean(at::IntArrayRef{2, 3}) : x.flatten(1), context);
    return shape_.output == Output::kLogits ? y : nn::dropout(at::relu(y), shape_.dropout, name(), context);
  }

 private:
  Shape shape_;
  nn::Linear linear_;
};

// relu(conv(x)): [N, in, H, W] -> [N, out, H / stride, W / stride]
class ConvRelu : public nn::RegisteredLayer {
 public:
  ConvRelu(const std::string& name, const nn::ConvShape& shape, const nn::LayerOptions& options)
      : RegisteredLayer(name, options), conv_(registry_, name, shape, nn::Conv2d::Bias::kTorchDefault) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return at::relu(conv_(x, context));
  }

 private:
  nn::Conv2d conv_;
};

}  // namespace

Layers make_mlp(const ModelOptions& options) {
  const nn::LayerOptions layer = layer_options(options);
  const std::int64_t pixels = std::int64_t{options.channels} * options.image_size * options.image_size;
  Layers layers;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out, Output output) {
    layers.push_back(
        std::make_unique<Dense>(name, Dense::Shape{in, out, Input::kFlatten, output, options.dropout}, layer));
  };
  add("fc1", pixels, kMlpHidden, Output::kHidden);
  add("fc2", kMlpHidden, kMlpHidden, Output::kHidden);
  add("fc3", kMlpHidden, options.classes, Output::kLogits);
  return layers;
}

Layers make_toy_cnn(const ModelOptions& options) {
  const nn::LayerOptions layer = layer_options(options);
  constexpr std::int64_t kFirst = 16, kSecond = 32, kThird = 64;
  Layers layers;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out, std::int64_t stride) {
    const nn::ConvShape shape{.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1};
    layers.push_back(std::make_unique<ConvRelu>(name, shape, layer));
  };
  add("conv1", options.channels, kFirst, 1);
  add("conv2", kFirst, kSecond, 2);
  add("conv3", kSecond, kThird, 2);
  const Dense::Shape head{kThird, options.classes, Input::kPool, Output::kLogits};
  layers.push_back(std::make_unique<Dense>("fc", head, layer));
  return layers;
}

}  // namespace sluice::models
