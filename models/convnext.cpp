// convnext: ConvNeXt (Liu et al. 2022) with the names, numerics and initial distributions of torchvision's
// convnext_tiny ... _large. Libraries differ in epsilons and GELU form, so these come from ModelConstants.
// Layers: features.stem (4x4, stride 4), four groups of blocks (features.1.0, ...) separated by features.downsample2, 4
// and 6, and classifier (mean over all pixels, layer norm, linear). A block is one layer: a cut inside would also send
// its input. Stochastic depth drops block i of n for a sample with probability model.stochastic_depth * i / (n - 1),
// keyed like dropout.
#include <array>

#include "core/concat.h"
#include "core/error.h"
#include "models/families.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

namespace sluice::models {
namespace {

constexpr double kFirstScale = 1e-6;
constexpr std::size_t kConvNextGroups = 4;
constexpr int kSmallestConvNextImage = 32;  // the stem divides the size by 4, each of three layers by 2

struct ConvNextSize {
  const char* name;
  std::array<std::int64_t, kConvNextGroups> widths;
  std::array<int, kConvNextGroups> blocks;
};
constexpr std::array kConvNextSizes{
    ConvNextSize{"tiny", {96, 192, 384, 768}, {3, 3, 9, 3}},
    ConvNextSize{"small", {96, 192, 384, 768}, {3, 3, 27, 3}},
    ConvNextSize{"base", {128, 256, 512, 1024}, {3, 3, 27, 3}},
    ConvNextSize{"large", {192, 384, 768, 1536}, {3, 3, 27, 3}},
};

nn::Conv2d patches(nn::Registry& registry, const std::string& name, std::int64_t in, std::int64_t out,
                   std::int64_t size) {
  return {registry, name, {.in = in, .out = out, .kernel = size, .stride = size}, nn::Conv2d::Bias::kZeroNormal};
}

// [N, C, H, W], normalized over the channels at each pixel. Input and output are channels_last, so no data moves.
at::Tensor over_channels(const nn::LayerNorm& norm, const at::Tensor& x) {
  return norm(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

// [N, in, H, W] -> [N, out, H / 4, W / 4]
class PatchStem : public nn::RegisteredLayer {
 public:
  PatchStem(std::int64_t in, std::int64_t out, double epsilon, const nn::LayerOptions& options)
      : RegisteredLayer("features.stem", options),
        conv_(patches(registry_, "features.0.0", in, out, 4)),
        norm_(registry_, "features.0.1", out, epsilon) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return over_channels(norm_, conv_(x, context));
  }

 private:
  nn::Conv2d conv_;
  nn::LayerNorm norm_;
};

// [N, in, H, W] -> [N, out, H / 2, W / 2]
class Downsample : public nn::RegisteredLayer {
 public:
  Downsample(std::size_t index, std::int64_t in, std::int64_t out, double epsilon, const nn::LayerOptions& options)
      : RegisteredLayer(concat("features.downsample", index), options),
        norm_(registry_, concat("features.", index, ".0"), in, epsilon),
        conv_(patches(registry_, concat("features.", index, ".1"), in, out, 2)) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return conv_(over_channels(norm_, x), context);
  }

 private:
  nn::LayerNorm norm_;
  nn::Conv2d conv_;
};

// x + scale * linear(gelu(linear(norm(depthwise(x))))): [N, width, H, W] -> the same shape
class ConvNextBlock : public nn::RegisteredLayer {
 public:
  ConvNextBlock(const std::string& name, std::int64_t width, double left_out, const ModelConstants& constants,
                const nn::LayerOptions& options)
      : RegisteredLayer(name, options),
        left_out_(left_out),
        scale_(registry_.add_parameter(name + ".layer_scale", {width, 1, 1}, nn::Init::constant(kFirstScale))),
        depthwise_(registry_, name + ".block.0",
                   {.in = width, .out = width, .kernel = 7, .padding = 3, .groups = width},
                   nn::Conv2d::Bias::kZeroNormal),
        norm_(registry_, name + ".block.2", width, constants.norm_epsilon),
        hidden_(registry_, name + ".block.3", width, 4 * width, nn::LinearInit::transformer()),
        output_(registry_, name + ".block.5", 4 * width, width, nn::LinearInit::transformer()),
        gelu_(constants.gelu) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor pixels = norm_(depthwise_(x, context).permute({0, 2, 3, 1}));
    const at::Tensor mixed =
        output_(nn::linear_gelu(pixels, hidden_, context, gelu_), context) * scale_.value.flatten();
    return x + kept(mixed.permute({0, 3, 1, 2}), context);
  }

 private:
  [[nodiscard]] at::Tensor kept(const at::Tensor& y, const nn::ForwardContext& context) const {
    if (!context.training || left_out_ == 0) return y;
    return y * nn::dropout_mask(y.detach().narrow(1, 0, 1).narrow(2, 0, 1).narrow(3, 0, 1), left_out_, name(), context);
  }

  double left_out_;
  nn::Parameter& scale_;
  nn::Conv2d depthwise_;
  nn::LayerNorm norm_;
  nn::Linear hidden_, output_;
  nn::GeluForm gelu_;
};

// [N, width, H, W] -> [N, classes]
class ConvNextHead : public nn::RegisteredLayer {
 public:
  ConvNextHead(std::int64_t width, std::int64_t classes, double epsilon, const nn::LayerOptions& options)
      : RegisteredLayer("classifier", options),
        norm_(registry_, "classifier.0", width, epsilon),
        linear_(registry_, "classifier.2", width, classes, nn::LinearInit::transformer()) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return linear_(norm_(x.mean(at::IntArrayRef{2, 3})), context);
  }

 private:
  nn::LayerNorm norm_;
  nn::Linear linear_;
};

void check_convnext_image(const ModelOptions& options) {
  if (options.image_size >= kSmallestConvNextImage) return;
  throw ConfigError("model.image_size=", options.image_size,
                    " is too small for convnext, which divides it by 32; use images of at least ",
                    kSmallestConvNextImage, " pixels or another model");
}

}  // namespace

std::vector<std::string> convnext_sizes() { return names_of(kConvNextSizes); }

Layers make_convnext(const ModelOptions& options) {
  check_convnext_image(options);
  const ConvNextSize& size = size_named(kConvNextSizes, options.size);
  const nn::LayerOptions layer = layer_options(options);
  const ModelConstants& constants = options.constants.value();
  int blocks = 0, made = 0;
  for (const int count : size.blocks) blocks += count;
  Layers layers;
  layers.push_back(std::make_unique<PatchStem>(options.channels, size.widths[0], constants.norm_epsilon, layer));
  for (std::size_t group = 0; group < kConvNextGroups; ++group) {
    const std::int64_t width = size.widths[group];
    if (group > 0) {
      layers.push_back(
          std::make_unique<Downsample>(2 * group, size.widths[group - 1], width, constants.norm_epsilon, layer));
    }
    for (int i = 0; i < size.blocks[group]; ++i, ++made) {
      const double left_out = options.stochastic_depth * made / (blocks - 1);
      layers.push_back(std::make_unique<ConvNextBlock>(concat("features.", 2 * group + 1, ".", i), width, left_out,
                                                       constants, layer));
    }
  }
  layers.push_back(
      std::make_unique<ConvNextHead>(size.widths.back(), options.classes, constants.last_norm_epsilon, layer));
  return layers;
}

}  // namespace sluice::models
