// gpt2: GPT-2 (Radford et al. 2019) with the names, shapes and numerics of Hugging Face's GPT2LMHeadModel. `small` is
// the public model with 124 million parameters; nano and tiny have a vocabulary of 256 bytes.
// Layers: transformer.embeddings, per block i transformer.h.i.attn and transformer.h.i.mlp, and lm_head, whose matrix
// is tied to the token embedding.
#include <array>
#include <cmath>

#include "core/check.h"
#include "core/concat.h"
#include "models/families.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

namespace sluice::models {
namespace {

constexpr double kDeviation = 0.02;
constexpr const char* kTokenTable = "transformer.wte";

struct Gpt2Size {
  const char* name;
  std::int64_t width, blocks, heads;
  int vocabulary, context;
};
constexpr std::array kGpt2Sizes{
    Gpt2Size{"nano", 32, 2, 2, 256, 32},
    Gpt2Size{"tiny", 128, 4, 4, 256, 128},
    Gpt2Size{"small", 768, 12, 12, 50257, 1024},
};

struct Gpt2Options {
  Gpt2Size size;
  std::int64_t vocabulary, context;
  double dropout;
  ModelConstants constants;
  nn::LayerOptions layer;
  // Projections into the residual stream start smaller, by 1 / sqrt(their number).
  [[nodiscard]] nn::LinearInit residual_init() const {
    return nn::LinearInit::transformer(kDeviation / std::sqrt(2.0 * static_cast<double>(size.blocks)));
  }
};

// [N, T] int64 -> [N, T, width]
class Gpt2Embeddings : public nn::RegisteredLayer {
 public:
  explicit Gpt2Embeddings(const Gpt2Options& options)
      : RegisteredLayer("transformer.embeddings", options.layer),
        dropout_(options.dropout),
        context_(options.context),
        tokens_(registry_, kTokenTable, options.vocabulary, options.size.width, nn::Init::normal(kDeviation)),
        positions_(registry_.add_parameter("transformer.wpe.weight", {options.context, options.size.width},
                                           nn::Init::normal(kDeviation), nn::ParameterRole::kPosition)) {}

  at::Tensor forward(const at::Tensor& tokens, const nn::ForwardContext& context) override {
    check(tokens.dim() == 2 && tokens.size(1) <= context_,
          concat("tokens [N, T] of at most ", context_, " positions, not ", tokens.sizes()));
    const at::Tensor x = tokens_(tokens, context) + positions_.value.narrow(0, 0, tokens.size(1));
    return nn::dropout(x, dropout_, name(), context);
  }

 private:
  double dropout_;
  std::int64_t context_;
  nn::Embedding tokens_;
  nn::Parameter& positions_;
};

// x + attention(ln_1(x)): [N, T, width] -> the same shape
class Gpt2AttentionHalf : public nn::RegisteredLayer {
 public:
  Gpt2AttentionHalf(const std::string& block, const Gpt2Options& options)
      : RegisteredLayer(block + ".attn", options.layer),
        dropout_(options.dropout),
        site_(block + "/attn"),
        output_site_(block + "/attn.c_proj"),
        heads_(options.size.heads),
        norm_(registry_, block + ".ln_1", options.size.width, options.constants.norm_epsilon),
        packed_(registry_, name() + ".c_attn", options.size.width, 3 * options.size.width,
                nn::LinearInit::transformer(kDeviation), nn::WeightLayout::kInOut),
        output_(registry_, name() + ".c_proj", options.size.width, options.size.width, options.residual_init(),
                nn::WeightLayout::kInOut) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const nn::AttentionOptions options{.heads = heads_, .dropout = dropout_, .site = site_, .causal = true};
    const at::Tensor attended = nn::self_attention(packed_(norm_(x), context), options, context);
    return x + nn::dropout(output_(attended, context), dropout_, output_site_, context);
  }

 private:
  double dropout_;
  std::string site_, output_site_;
  std::int64_t heads_;
  nn::LayerNorm norm_;
  nn::Linear packed_, output_;
};

// x + mlp(ln_2(x)): [N, T, width] -> the same shape
class Gpt2MlpHalf : public nn::RegisteredLayer {
 public:
  Gpt2MlpHalf(const std::string& block, const Gpt2Options& options)
      : RegisteredLayer(block + ".mlp", options.layer),
        dropout_(options.dropout),
        site_(block + "/mlp.c_proj"),
        norm_(registry_, block + ".ln_2", options.size.width, options.constants.norm_epsilon),
        hidden_(registry_, name() + ".c_fc", options.size.width, 4 * options.size.width,
                nn::LinearInit::transformer(kDeviation), nn::WeightLayout::kInOut),
        output_(registry_, name() + ".c_proj", 4 * options.size.width, options.size.width, options.residual_init(),
                nn::WeightLayout::kInOut),
        gelu_(options.constants.gelu) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor hidden = nn::linear_gelu(norm_(x), hidden_, context, gelu_);
    return x + nn::dropout(output_(hidden, context), dropout_, site_, context);
  }

 private:
  double dropout_;
  std::string site_;
  nn::LayerNorm norm_;
  nn::Linear hidden_, output_;
  nn::GeluForm gelu_;
};

// [N, T, width] -> logits [N, T, vocabulary]
class Gpt2Head : public nn::RegisteredLayer {
 public:
  explicit Gpt2Head(const Gpt2Options& options)
      : RegisteredLayer("lm_head", options.layer),
        norm_(registry_, "transformer.ln_f", options.size.width, options.constants.last_norm_epsilon),
        weight_(registry_.add_tied_parameter("lm_head.weight", concat(kTokenTable, ".weight"),
                                             {options.vocabulary, options.size.width}, nn::Init::normal(kDeviation))) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return nn::linear(norm_(x), {weight_.value}, {}, context);
  }

 private:
  nn::LayerNorm norm_;
  nn::Parameter& weight_;
};

}  // namespace

std::vector<std::string> gpt2_sizes() { return names_of(kGpt2Sizes); }

std::int64_t gpt2_heads(const std::string& size) { return size_named(kGpt2Sizes, size).heads; }

TokenSizes gpt2_tokens(const std::string& size) {
  const Gpt2Size& sizes = size_named(kGpt2Sizes, size);
  return {sizes.vocabulary, sizes.context};
}

Layers make_gpt2(const ModelOptions& options) {
  const Gpt2Options gpt2{.size = size_named(kGpt2Sizes, options.size),
                         .vocabulary = options.vocabulary,
                         .context = options.context,
                         .dropout = options.dropout,
                         .constants = options.constants.value(),
                         .layer = layer_options(options)};
  Layers layers;
  layers.push_back(std::make_unique<Gpt2Embeddings>(gpt2));
  for (std::int64_t i = 0; i < gpt2.size.blocks; ++i) {
    const std::string block = concat("transformer.h.", i);
    layers.push_back(std::make_unique<Gpt2AttentionHalf>(block, gpt2));
    layers.push_back(std::make_unique<Gpt2MlpHalf>(block, gpt2));
  }
  layers.push_back(std::make_unique<Gpt2Head>(gpt2));
  return layers;
}

}  // namespace sluice::models
