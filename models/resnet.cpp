// ResNets of basic blocks (He et al. 2016), names and initial distributions of torchvision's ResNet.
// resnet8: for small images (section 4.2, n = 1): a 3x3 stem of 16 channels and blocks of 16, 32 and 64 channels.
// resnet18: two blocks each of 64, 128, 256 and 512 channels behind one of two stems (model.stem).
// Layers: conv1 (the stem), layer1.0, ..., fc (average pooling and the classifier). A block is one layer.
#include <array>
#include <span>

#include "core/concat.h"
#include "models/families.h"
#include "nn/batch_norm.h"
#include "nn/conv.h"
#include "nn/linear.h"
#include "nn/pool.h"

namespace sluice::models {
namespace {

using nn::Activation;

enum class StemKind {
  kCifar,     // 3x3, stride 1: [N, in, H, W] -> [N, out, H, W]
  kImagenet,  // 7x7, stride 2, then a 3x3 maximum of stride 2: [N, in, H, W] -> [N, out, ceil(H / 4), ceil(W / 4)]
};

class Stem : public nn::RegisteredLayer {
 public:
  Stem(StemKind kind, std::int64_t in, std::int64_t out, const nn::LayerOptions& options)
      : RegisteredLayer("conv1", options),
        kind_(kind),
        conv_(registry_, "conv1", shape(kind, in, out), nn::Conv2d::Bias::kNone),
        norm_(registry_, "bn1", out) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor y = norm_(conv_(x, context), context, Activation::kRelu);
    return kind_ == StemKind::kCifar ? y : nn::max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override { return {&norm_}; }

 private:
  static nn::ConvShape shape(StemKind kind, std::int64_t in, std::int64_t out) {
    return kind == StemKind::kCifar ? nn::ConvShape{.in = in, .out = out, .kernel = 3, .padding = 1}
                                    : nn::ConvShape{.in = in, .out = out, .kernel = 7, .stride = 2, .padding = 3};
  }

  StemKind kind_;
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
    if (!shortcut_) return {&norm1_, &norm2_};
    return {&shortcut_->norm, &norm1_, &norm2_};
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

// Group i has `blocks` basic blocks of widths[i] channels; every group but the first halves the image.
Layers make_resnet(const ModelOptions& options, StemKind stem, std::span<const std::int64_t> widths, int blocks) {
  const nn::LayerOptions layer = layer_options(options);
  Layers layers;
  layers.push_back(std::make_unique<Stem>(stem, options.channels, widths[0], layer));
  std::int64_t in = widths[0];
  for (std::size_t group = 0; group < widths.size(); ++group) {
    for (int block = 0; block < blocks; ++block) {
      const std::int64_t stride = group > 0 && block == 0 ? 2 : 1;
      layers.push_back(
          std::make_unique<BasicBlock>(concat("layer", group + 1, ".", block), in, widths[group], stride, layer));
      in = widths[group];
    }
  }
  layers.push_back(std::make_unique<PooledHead>(in, options.classes, layer));
  return layers;
}

}  // namespace

std::vector<std::string> resnet_stems() { return {"cifar", "imagenet"}; }

Layers make_resnet8(const ModelOptions& options) {
  return make_resnet(options, StemKind::kCifar, std::array<std::int64_t, 3>{16, 32, 64}, 1);
}

Layers make_resnet18(const ModelOptions& options) {
  const StemKind stem = options.stem == "imagenet" ? StemKind::kImagenet : StemKind::kCifar;
  return make_resnet(options, stem, std::array<std::int64_t, 4>{64, 128, 256, 512}, 2);
}

}  // namespace sluice::models
