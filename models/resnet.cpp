// resnet: ResNets (He et al. 2016) with the names and initial distributions of torchvision's ResNet.
// - resnet8, for small images (section 4.2, n = 1): a 3x3 stem of 16 channels, then blocks of 16, 32 and 64 channels.
// - resnet18 to resnet152: one of two stems (model.stem), then groups of 64, 128, 256 and 512 channels. From resnet50
//   on, blocks are bottlenecks with the stride in the 3x3 convolution (torchvision's "v1.5").
// Layers: conv1 (the stem), layer1.0, ..., fc (average pooling and the classifier). A block is one layer.
#include <algorithm>
#include <array>

#include "core/check.h"
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
  kImagenet,  // 7x7, stride 2, then 3x3 max-pooling, stride 2: [N, in, H, W] -> [N, out, ceil(H / 4), ceil(W / 4)]
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

// The shortcut of a block: identity, or a 1x1 convolution and a batch norm if the block changes the shape.
class Shortcut {
 public:
  Shortcut(nn::Registry& registry, const std::string& block, std::int64_t in, std::int64_t out, std::int64_t stride) {
    if (stride == 1 && in == out) return;
    conv_ = std::make_unique<nn::Conv2d>(registry, block + ".downsample.0",
                                         nn::ConvShape{.in = in, .out = out, .kernel = 1, .stride = stride},
                                         nn::Conv2d::Bias::kNone);
    norm_ = std::make_unique<nn::BatchNorm2d>(registry, block + ".downsample.1", out);
  }

  at::Tensor operator()(const at::Tensor& x, const nn::ForwardContext& context) {
    return norm_ ? (*norm_)((*conv_)(x, context), context, Activation::kNone) : x;
  }

  [[nodiscard]] std::vector<nn::BatchNorm2d*> before(std::vector<nn::BatchNorm2d*> norms) {
    if (norm_) norms.insert(norms.begin(), norm_.get());
    return norms;
  }

 private:
  std::unique_ptr<nn::Conv2d> conv_;
  std::unique_ptr<nn::BatchNorm2d> norm_;
};

struct BlockShape {
  std::int64_t in, width, stride;
};

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)): [N, in, H, W] -> [N, width, H / stride, W / stride]
class BasicBlock : public nn::RegisteredLayer {
 public:
  static constexpr std::int64_t kExpansion = 1;

  BasicBlock(const std::string& name, const BlockShape& shape, const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        conv1_(registry_, name + ".conv1",
               {.in = shape.in, .out = shape.width, .kernel = 3, .stride = shape.stride, .padding = 1},
               nn::Conv2d::Bias::kNone),
        norm1_(registry_, name + ".bn1", shape.width),
        conv2_(registry_, name + ".conv2", {.in = shape.width, .out = shape.width, .kernel = 3, .padding = 1},
               nn::Conv2d::Bias::kNone),
        norm2_(registry_, name + ".bn2", shape.width),
        shortcut_(registry_, name, shape.in, shape.width, shape.stride) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor identity = shortcut_(x, context);
    const at::Tensor inner = norm1_(conv1_(x, context), context, Activation::kRelu);
    return norm2_(conv2_(inner, context), context, Activation::kRelu, identity);
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override { return shortcut_.before({&norm1_, &norm2_}); }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  Shortcut shortcut_;
};

// relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x)))))))) + shortcut(x)):
// [N, in, H, W] -> [N, 4 * width, H / stride, W / stride]
class Bottleneck : public nn::RegisteredLayer {
 public:
  static constexpr std::int64_t kExpansion = 4;

  Bottleneck(const std::string& name, const BlockShape& shape, const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        conv1_(registry_, name + ".conv1", {.in = shape.in, .out = shape.width, .kernel = 1}, nn::Conv2d::Bias::kNone),
        norm1_(registry_, name + ".bn1", shape.width),
        conv2_(registry_, name + ".conv2",
               {.in = shape.width, .out = shape.width, .kernel = 3, .stride = shape.stride, .padding = 1},
               nn::Conv2d::Bias::kNone),
        norm2_(registry_, name + ".bn2", shape.width),
        conv3_(registry_, name + ".conv3", {.in = shape.width, .out = kExpansion * shape.width, .kernel = 1},
               nn::Conv2d::Bias::kNone),
        norm3_(registry_, name + ".bn3", kExpansion * shape.width),
        shortcut_(registry_, name, shape.in, kExpansion * shape.width, shape.stride) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor identity = shortcut_(x, context);
    const at::Tensor narrow = norm1_(conv1_(x, context), context, Activation::kRelu);
    const at::Tensor mixed = norm2_(conv2_(narrow, context), context, Activation::kRelu);
    return norm3_(conv3_(mixed, context), context, Activation::kRelu, identity);
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override { return shortcut_.before({&norm1_, &norm2_, &norm3_}); }

 private:
  nn::Conv2d conv1_;
  nn::BatchNorm2d norm1_;
  nn::Conv2d conv2_;
  nn::BatchNorm2d norm2_;
  nn::Conv2d conv3_;
  nn::BatchNorm2d norm3_;
  Shortcut shortcut_;
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

enum class BlockKind { kBasic, kBottleneck };

struct ResNet {
  const char* name;
  BlockKind kind;
  std::vector<std::int64_t> widths;  // of the groups; every group except the first halves the image
  std::vector<int> blocks;
};

const std::vector<ResNet>& resnets() {
  static const std::vector<std::int64_t> widths{64, 128, 256, 512};
  static const std::vector<ResNet> all{
      {"resnet8", BlockKind::kBasic, {16, 32, 64}, {1, 1, 1}},
      {"resnet18", BlockKind::kBasic, widths, {2, 2, 2, 2}},
      {"resnet34", BlockKind::kBasic, widths, {3, 4, 6, 3}},
      {"resnet50", BlockKind::kBottleneck, widths, {3, 4, 6, 3}},
      {"resnet101", BlockKind::kBottleneck, widths, {3, 4, 23, 3}},
      {"resnet152", BlockKind::kBottleneck, widths, {3, 8, 36, 3}},
  };
  return all;
}

template <typename Block>
std::int64_t add_blocks(Layers& layers, const ResNet& resnet, const nn::LayerOptions& options) {
  std::int64_t in = resnet.widths[0];
  for (std::size_t group = 0; group < resnet.widths.size(); ++group) {
    for (int block = 0; block < resnet.blocks[group]; ++block) {
      const BlockShape shape{in, resnet.widths[group], group > 0 && block == 0 ? 2 : 1};
      layers.push_back(std::make_unique<Block>(concat("layer", group + 1, ".", block), shape, options));
      in = Block::kExpansion * shape.width;
    }
  }
  return in;
}

}  // namespace

std::vector<std::string> resnet_names() { return names_of(resnets()); }

std::vector<std::string> resnet_stems() { return {"cifar", "imagenet"}; }

Layers make_resnet(const ModelOptions& options) {
  const ResNet& resnet = size_named(resnets(), options.name);
  const nn::LayerOptions layer = layer_options(options);
  const StemKind stem = options.stem == "imagenet" ? StemKind::kImagenet : StemKind::kCifar;
  Layers layers;
  layers.push_back(std::make_unique<Stem>(stem, options.channels, resnet.widths[0], layer));
  const std::int64_t width = resnet.kind == BlockKind::kBasic ? add_blocks<BasicBlock>(layers, resnet, layer)
                                                              : add_blocks<Bottleneck>(layers, resnet, layer);
  layers.push_back(std::make_unique<PooledHead>(width, options.classes, layer));
  return layers;
}

}  // namespace sluice::models
