// ResNet-8 for small images (He et al. 2016, section 4.2, n = 1): a 3x3 stem of 16 channels and three basic blocks of
// 16, 32 and 64 channels. Names as torchvision's ResNet gives them. Layers: conv1, layer1.0, layer2.0, layer3.0, fc.
#include <array>

#include "core/concat.h"
#include "models/families.h"
#include "nn/batch_norm.h"
#include "nn/conv.h"
#include "nn/linear.h"

namespace sluice::models {
namespace {

using nn::Activation;

// [N, in, H, W] -> [N, out, H, W]
class Stem : public nn::RegisteredLayer {
 public:
  Stem(std::int64_t in, std::int64_t out, const nn::LayerOptions& options)
      : RegisteredLayer("conv1", options),
        conv_(registry_, "conv1", {.in = in, .out = out, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone),
        norm_(registry_, "bn1", out) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return norm_(conv_(x, context), context, Activation::kRelu);
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override { return {&norm_}; }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
};

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)): [N, in, H, W] -> [N, out, H / stride, W / stride]
class BasicBlock : public nn::RegisteredLayer {
 public:
  BasicBlock(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t stride,
             const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        conv1_(registry_, name + ".conv1", {.in = in, .out = out, .kernel = 3, .stride = stride, .padding = 1},
               nn::Conv2d::Bias::kNone),
        norm1_(registry_, name + ".bn1", out),
        conv2_(registry_, name + ".conv2", {.in = out, .out = out, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone),
        norm2_(registry_, name + ".bn2", out) {
    if (stride == 1 && in == out) return;
    shortcut_ = std::make_unique<Shortcut>(
        Shortcut{nn::Conv2d(registry_, name + ".downsample.0", {.in = in, .out = out, .kernel = 1, .stride = stride},
                            nn::Conv2d::Bias::kNone),
                 nn::BatchNorm2d(registry_, name + ".downsample.1", out)});
  }

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor identity =
        shortcut_ ? shortcut_->norm(shortcut_->conv(x, context), context, Activation::kNone) : x;
    const at::Tensor inner = norm1_(conv1_(x, context), context, Activation::kRelu);
    return norm2_(conv2_(inner, context), context, Activation::kRelu, identity);
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override {
    std::vector<nn::BatchNorm2d*> norms{&norm1_, &norm2_};
    if (shortcut_) norms.push_back(&shortcut_->norm);
    return norms;
  }

 private:
  struct Shortcut {
    nn::Conv2d conv;
    nn::BatchNorm2d norm;
  };
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  std::unique_ptr<Shortcut> shortcut_;
};

// [N, in, H, W] -> [N, classes]
class PooledHead : public nn::RegisteredLayer {
 public:
  PooledHead(std::int64_t in, std::int64_t classes, const nn::LayerOptions& options)
      : RegisteredLayer("fc", options), linear_(registry_, "fc", in, classes, nn::LinearInit::torch_default(in)) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return linear_(x.mean(at::IntArrayRef{2, 3}), context);
  }

 private:
  nn::Linear linear_;
};

}  // namespace

Layers make_resnet8(const ModelOptions& options) {
  const nn::LayerOptions layer = layer_options(options);
  constexpr std::array<std::int64_t, 3> kWidths{16, 32, 64};
  Layers layers;
  layers.push_back(std::make_unique<Stem>(options.channels, kWidths[0], layer));
  std::int64_t in = kWidths[0];
  for (std::size_t i = 0; i < kWidths.size(); ++i) {
    layers.push_back(std::make_unique<BasicBlock>(concat("layer", i + 1, ".0"), in, kWidths[i], i == 0 ? 1 : 2, layer));
    in = kWidths[i];
  }
  layers.push_back(std::make_unique<PooledHead>(in, options.classes, layer));
  return layers;
}

}  // namespace sluice::models
