// vgg: VGG-11 to VGG-19 (Simonyan and Zisserman 2015, configurations A, B, D and E), with and without batch norm.
// Names, numerics and initial distributions are those of torchvision's vgg11 ... vgg19_bn.
// Layers: each convolution with its batch norm, ReLU and following pooling, named as the convolution (features.0, ...);
// then classifier.0 (with the pooling to 7x7, 103 million parameters), classifier.3 and classifier.6.
#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "models/families.h"
#include "nn/batch_norm.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/pool.h"

namespace sluice::models {
namespace {

constexpr std::int64_t kGrid = 7;  // height and width of the classifier's input
constexpr std::int64_t kHidden = 4096;

constexpr std::array<std::int64_t, 5> kWidths{64, 128, 256, 512, 512};
constexpr int kSmallestImage = 1 << kWidths.size();  // each pooling halves the size

enum class Norm { kNone, kBatch };

struct Vgg {
  const char* name;
  Norm norm;
  std::array<int, kWidths.size()> convolutions;
};
constexpr std::array kVggs{
    Vgg{"vgg11", Norm::kNone, {1, 1, 2, 2, 2}}, Vgg{"vgg11_bn", Norm::kBatch, {1, 1, 2, 2, 2}},
    Vgg{"vgg13", Norm::kNone, {2, 2, 2, 2, 2}}, Vgg{"vgg13_bn", Norm::kBatch, {2, 2, 2, 2, 2}},
    Vgg{"vgg16", Norm::kNone, {2, 2, 3, 3, 3}}, Vgg{"vgg16_bn", Norm::kBatch, {2, 2, 3, 3, 3}},
    Vgg{"vgg19", Norm::kNone, {2, 2, 4, 4, 4}}, Vgg{"vgg19_bn", Norm::kBatch, {2, 2, 4, 4, 4}},
};
enum class Pool { kNone, kHalve };

// [N, in, H, W] -> [N, out, H, W], or [N, out, H / 2, W / 2] with a pooling.
class Convolution : public nn::RegisteredLayer {
 public:
  struct Shape {
    int index;  // position in torchvision's list of features
    std::int64_t in, out;
    Norm norm;
    Pool pool;
  };
  Convolution(const Shape& shape, const nn::LayerOptions& options)
      : RegisteredLayer(concat("features.", shape.index), options),
        pool_(shape.pool),
        conv_(registry_, name(), {.in = shape.in, .out = shape.out, .kernel = 3, .padding = 1},
              nn::Conv2d::Bias::kZero) {
    if (shape.norm == Norm::kNone) return;
    norm_ = std::make_unique<nn::BatchNorm2d>(registry_, concat("features.", shape.index + 1), shape.out);
  }

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor y = conv_(x, context);
    if (norm_) return pooled((*norm_)(y, context, nn::Activation::kRelu));
    return at::relu(pooled(y));  // the same result as pooling after ReLU, with a quarter of the work
  }
  std::vector<nn::BatchNorm2d*> batch_norms() override {
    return norm_ ? std::vector<nn::BatchNorm2d*>{norm_.get()} : std::vector<nn::BatchNorm2d*>{};
  }

 private:
  [[nodiscard]] at::Tensor pooled(const at::Tensor& y) const {
    return pool_ == Pool::kNone ? y : nn::max_pool2d(y, {.kernel = 2, .stride = 2});
  }

  Pool pool_;
  nn::Conv2d conv_;
  std::unique_ptr<nn::BatchNorm2d> norm_;
};

nn::Linear vgg_linear(nn::Registry& registry, const std::string& name, std::int64_t in, std::int64_t out) {
  return {registry, name, in, out, {.weight = nn::Init::normal(0.01), .bias = nn::Init::constant(0)}};
}

// dropout(relu(linear(x))): [N, 512, H, W], pooled to 7x7, or [N, 4096] -> [N, 4096]
class Hidden : public nn::RegisteredLayer {
 public:
  Hidden(const std::string& name, std::int64_t in, double dropout, const nn::LayerOptions& options)
      : RegisteredLayer(name, options), dropout_(dropout), linear_(vgg_linear(registry_, name, in, kHidden)) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor rows = x.dim() == 4 ? nn::adaptive_avg_pool2d(x, kGrid).flatten(1) : x;
    return nn::dropout(at::relu(linear_(rows, context)), dropout_, name(), context);
  }

 private:
  double dropout_;
  nn::Linear linear_;
};

// [N, 4096] -> [N, classes]
class Logits : public nn::RegisteredLayer {
 public:
  Logits(const std::string& name, std::int64_t classes, const nn::LayerOptions& options)
      : RegisteredLayer(name, options), linear_(vgg_linear(registry_, name, kHidden, classes)) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override { return linear_(x, context); }

 private:
  nn::Linear linear_;
};

Layers make_features(const ModelOptions& options, const Vgg& vgg) {
  Layers layers;
  int index = 0;
  std::int64_t in = options.channels;
  for (std::size_t group = 0; group < kWidths.size(); ++group) {
    for (int i = 0; i < vgg.convolutions[group]; ++i) {
      const Pool pool = i + 1 == vgg.convolutions[group] ? Pool::kHalve : Pool::kNone;
      layers.push_back(std::make_unique<Convolution>(Convolution::Shape{index, in, kWidths[group], vgg.norm, pool},
                                                     layer_options(options)));
      index += vgg.norm == Norm::kBatch ? 3 : 2;  // convolution, batch norm, ReLU
      in = kWidths[group];
    }
    ++index;
  }
  return layers;
}

void check_vgg_image(const ModelOptions& options) {
  if (options.image_size >= kSmallestImage) return;
  throw ConfigError("model.image_size=", options.image_size, " is too small for ", options.name, ", which halves it ",
                    kWidths.size(), " times; use images of at least ", kSmallestImage, " pixels or another model");
}

}  // namespace

std::vector<std::string> vgg_names() { return names_of(kVggs); }

Layers make_vgg(const ModelOptions& options) {
  check_vgg_image(options);
  Layers layers = make_features(options, size_named(kVggs, options.name));
  const nn::LayerOptions layer = layer_options(options);
  const std::int64_t features = kWidths.back() * kGrid * kGrid;
  layers.push_back(std::make_unique<Hidden>("classifier.0", features, options.dropout, layer));
  layers.push_back(std::make_unique<Hidden>("classifier.3", kHidden, options.dropout, layer));
  layers.push_back(std::make_unique<Logits>("classifier.6", options.classes, layer));
  return layers;
}

}  // namespace sluice::models
