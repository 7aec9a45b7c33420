// vit: vision transformer for classification (Dosovitskiy et al. 2021) with the names and numerics of Hugging Face's
// ViTForImageClassification. Libraries differ in epsilons and GELU form, so these come from ModelConstants.
// Layers: vit.embeddings, per block i vit.encoder.layer.i.attention and vit.encoder.layer.i.mlp, and classifier. The
// last block computes only the class token, [N, 1, width], because no later layer reads other tokens.
#include <array>

#include "core/concat.h"
#include "core/error.h"
#include "models/families.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

namespace sluice::models {
namespace {

struct VitSize {
  const char* name;
  std::int64_t width, blocks, heads, hidden;
};
constexpr std::array kVitSizes{
    VitSize{"nano", 64, 4, 4, 128},     VitSize{"tiny", 192, 12, 3, 768},     VitSize{"small", 384, 12, 6, 1536},
    VitSize{"base", 768, 12, 12, 3072}, VitSize{"large", 1024, 24, 16, 4096},
};

struct VitOptions {
  VitSize size;
  std::int64_t image_size, patch_size, channels, classes;
  double dropout;
  ModelConstants constants;
  nn::LayerOptions layer;
  [[nodiscard]] std::int64_t grid() const { return image_size / patch_size; }
};

// [N, C, H, W] -> [N, 1 + patches, width]
class VitEmbeddings : public nn::RegisteredLayer {
 public:
  explicit VitEmbeddings(const VitOptions& options)
      : RegisteredLayer("vit.embeddings", options.layer),
        options_(options),
        class_token_(registry_.add_parameter(name() + ".cls_token", {1, 1, options.size.width}, nn::Init::normal(0.02),
                                             nn::ParameterRole::kPosition)),
        positions_(registry_.add_parameter(name() + ".position_embeddings",
                                           {1, options.grid() * options.grid() + 1, options.size.width},
                                           nn::Init::normal(0.02), nn::ParameterRole::kPosition)),
        weight_(registry_.add_parameter(name() + ".patch_embeddings.projection.weight",
                                        {options.size.width, options.channels, options.patch_size, options.patch_size},
                                        nn::Init::normal(0.02))),
        bias_(registry_.add_parameter(name() + ".patch_embeddings.projection.bias", {options.size.width},
                                      nn::Init::constant(0), nn::ParameterRole::kBias)) {}

  at::Tensor forward(const at::Tensor& images, const nn::ForwardContext& context) override {
    const std::int64_t count = images.size(0), grid = options_.grid(), patch = options_.patch_size;
    // The projection's stride equals its kernel size, so it is one linear map of every patch.
    const at::Tensor patches = images.reshape({count, options_.channels, grid, patch, grid, patch})
                                   .permute({0, 2, 4, 1, 3, 5})
                                   .reshape({count, grid * grid, options_.channels * patch * patch});
    const at::Tensor tokens = nn::linear(patches.to(registry_.activations()), {weight_.value}, {bias_.value}, context);
    const at::Tensor all = at::cat({class_token_.value.expand({count, 1, options_.size.width}), tokens}, 1);
    return nn::dropout(all + positions_.value, options_.dropout, name(), context);
  }

 private:
  VitOptions options_;
  nn::Parameter& class_token_;
  nn::Parameter& positions_;
  nn::Parameter& weight_;
  nn::Parameter& bias_;
};

nn::Linear vit_linear(nn::Registry& registry, const std::string& name, std::int64_t in, std::int64_t out) {
  return {registry, name, in, out, nn::LinearInit::transformer()};
}

// x + attention(layernorm_before(x)): [N, T, width] -> [N, T, width], or [N, 1, width] for the class token only.
class VitAttentionHalf : public nn::RegisteredLayer {
 public:
  enum class Tokens { kAll, kClassOnly };

  VitAttentionHalf(const std::string& block, const VitOptions& options, Tokens tokens)
      : RegisteredLayer(block + ".attention", options.layer),
        tokens_(tokens),
        dropout_(options.dropout),
        site_(block + "/attention"),
        output_site_(block + "/attention.output"),
        heads_(options.size.heads),
        query_(vit_linear(registry_, name() + ".attention.query", options.size.width, options.size.width)),
        key_(vit_linear(registry_, name() + ".attention.key", options.size.width, options.size.width)),
        value_(vit_linear(registry_, name() + ".attention.value", options.size.width, options.size.width)),
        output_(vit_linear(registry_, name() + ".output.dense", options.size.width, options.size.width)),
        norm_(registry_, block + ".layernorm_before", options.size.width, options.constants.norm_epsilon) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor attended =
        nn::dropout(output_(attend(norm_(x), context), context), dropout_, output_site_, context);
    return attended + (tokens_ == Tokens::kAll ? x : x.narrow(1, 0, 1));
  }

 private:
  at::Tensor attend(const at::Tensor& x, const nn::ForwardContext& context) const {
    const nn::AttentionOptions options{.heads = heads_, .dropout = dropout_, .site = site_};
    if (tokens_ == Tokens::kAll) {
      const std::array parts{&query_, &key_, &value_};
      return nn::self_attention(nn::linear_packed(x, parts, context), options, context);
    }
    const std::array parts{&key_, &value_};
    return nn::cross_attention(query_(x.narrow(1, 0, 1), context), nn::linear_packed(x, parts, context), options,
                               context);
  }

  Tokens tokens_;
  double dropout_;
  std::string site_, output_site_;
  std::int64_t heads_;
  nn::Linear query_, key_, value_, output_;
  nn::LayerNorm norm_;
};

// x + mlp(layernorm_after(x)): [N, T, width] -> the same shape
class VitMlpHalf : public nn::RegisteredLayer {
 public:
  VitMlpHalf(const std::string& block, const VitOptions& options)
      : RegisteredLayer(block + ".mlp", options.layer),
        dropout_(options.dropout),
        site_(block + "/output"),
        intermediate_(vit_linear(registry_, block + ".intermediate.dense", options.size.width, options.size.hidden)),
        output_(vit_linear(registry_, block + ".output.dense", options.size.hidden, options.size.width)),
        norm_(registry_, block + ".layernorm_after", options.size.width, options.constants.norm_epsilon),
        gelu_(options.constants.gelu) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor hidden = nn::linear_gelu(norm_(x), intermediate_, context, gelu_);
    return x + nn::dropout(output_(hidden, context), dropout_, site_, context);
  }

 private:
  double dropout_;
  std::string site_;
  nn::Linear intermediate_, output_;
  nn::LayerNorm norm_;
  nn::GeluForm gelu_;
};

// [N, 1, width] -> [N, classes]
class VitHead : public nn::RegisteredLayer {
 public:
  explicit VitHead(const VitOptions& options)
      : RegisteredLayer("classifier", options.layer),
        norm_(registry_, "vit.layernorm", options.size.width, options.constants.last_norm_epsilon),
        classifier_(registry_, "classifier", options.size.width, options.classes, nn::LinearInit::transformer()) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return classifier_(norm_(x).squeeze(1), context);
  }

 private:
  nn::LayerNorm norm_;
  nn::Linear classifier_;
};

void check_patches(const ModelOptions& options) {
  if (options.patch_size < 1 || options.image_size % options.patch_size != 0) {
    throw ConfigError("model.patch_size=", options.patch_size, " does not divide model.image_size=", options.image_size,
                      "; choose a divisor");
  }
}

}  // namespace

std::vector<std::string> vit_sizes() { return names_of(kVitSizes); }

std::int64_t vit_heads(const std::string& size) { return size_named(kVitSizes, size).heads; }

Layers make_vit(const ModelOptions& options) {
  check_patches(options);
  const VitOptions vit{.size = size_named(kVitSizes, options.size),
                       .image_size = options.image_size,
                       .patch_size = options.patch_size,
                       .channels = options.channels,
                       .classes = options.classes,
                       .dropout = options.dropout,
                       .constants = options.constants.value(),
                       .layer = layer_options(options)};
  Layers layers;
  layers.push_back(std::make_unique<VitEmbeddings>(vit));
  for (std::int64_t i = 0; i < vit.size.blocks; ++i) {
    const bool last = i + 1 == vit.size.blocks;
    const std::string block = concat("vit.encoder.layer.", i);
    layers.push_back(std::make_unique<VitAttentionHalf>(
        block, vit, last ? VitAttentionHalf::Tokens::kClassOnly : VitAttentionHalf::Tokens::kAll));
    layers.push_back(std::make_unique<VitMlpHalf>(block, vit));
  }
  layers.push_back(std::make_unique<VitHead>(vit));
  return layers;
}

}  // namespace sluice::models
