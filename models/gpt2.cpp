// gpt2: GPT-2 (Radford et al. 2019) with the names, shapes and numerics of Hugging Face's GPT2LMHeadModel and
// GPT2ForSequenceClassification. `small` is the public model with 124 million parameters; nano and tiny have a
// vocabulary of 256 bytes.
// Layers: transformer.embeddings, per block i transformer.h.i.attn and transformer.h.i.mlp, and lm_head, whose matrix
// is tied to the token embedding, or score.
#include <array>
#include <cmath>

#include "core/concat.h"
#include "models/families.h"
#include "models/text_layers.h"
#include "nn/attention.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/gelu.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"

namespace sluice::models {
namespace {

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
  TextConfig config;
  nn::LayerOptions layer;
  std::int64_t classes;

  [[nodiscard]] nn::Init init() const { return nn::Init::normal(config.deviation); }
  // Projections into the residual stream start smaller, by 1 / sqrt(their number).
  [[nodiscard]] double residual_deviation() const {
    return config.deviation / std::sqrt(2.0 * static_cast<double>(config.blocks));
  }
  [[nodiscard]] static nn::Linear linear(nn::Registry& registry, const std::string& name, std::int64_t in,
                                         std::int64_t out, double deviation) {
    return {registry, name, in, out, nn::LinearInit::transformer(deviation), nn::WeightLayout::kInOut};
  }
  [[nodiscard]] nn::LayerNorm norm(nn::Registry& registry, const std::string& name) const {
    return {registry, name, config.width, config.epsilon};
  }
};

// {tokens, mask, types, positions} -> {[N, T, width], mask}; types are not used.
class Gpt2Embeddings : public nn::RegisteredLayer {
 public:
  explicit Gpt2Embeddings(const Gpt2Options& options)
      : RegisteredLayer("transformer.embeddings", options.layer),
        dropout_(options.config.dropouts.embedding),
        longest_(options.config.longest()),
        tokens_(registry_, kTokenTable, options.config.vocabulary, options.config.width, options.init()),
        positions_(registry_.add_parameter("transformer.wpe.weight", {options.config.positions, options.config.width},
                                           options.init(), nn::ParameterRole::kPosition)) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const TextInputs in = text_inputs(inputs, longest_);
    const at::Tensor x = tokens_(in.tokens, context) + position_rows(positions_, in.positions, in.tokens.size(1));
    return border({nn::dropout(x, dropout_, name(), context), in.mask});
  }

 private:
  double dropout_;
  std::int64_t longest_;
  nn::Embedding tokens_;
  nn::Parameter& positions_;
};

// x + attention(ln_1(x)): [N, T, width] -> the same shape
class Gpt2AttentionHalf : public nn::RegisteredLayer {
 public:
  Gpt2AttentionHalf(const std::string& block, const Gpt2Options& options)
      : RegisteredLayer(block + ".attn", options.layer),
        config_(options.config),
        site_(block + "/attn"),
        output_site_(block + "/attn.c_proj"),
        norm_(options.norm(registry_, block + ".ln_1")),
        packed_(
            Gpt2Options::linear(registry_, name() + ".c_attn", config_.width, 3 * config_.width, config_.deviation)),
        output_(Gpt2Options::linear(registry_, name() + ".c_proj", config_.width, config_.width,
                                    options.residual_deviation())) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor& x = inputs.front();
    const nn::AttentionOptions options{
        .heads = config_.heads, .dropout = config_.dropouts.attention, .site = site_, .causal = true};
    const at::Tensor attended = nn::self_attention(packed_(norm_(x), context), options, context, at_or_none(inputs, 1));
    nn::Tensors outputs = inputs;
    outputs.front() = x + nn::dropout(output_(attended, context), config_.dropouts.hidden, output_site_, context);
    return outputs;
  }

 private:
  TextConfig config_;
  std::string site_, output_site_;
  nn::LayerNorm norm_;
  nn::Linear packed_, output_;
};

// x + mlp(ln_2(x)): [N, T, width] -> the same shape
class Gpt2MlpHalf : public nn::RegisteredLayer {
 public:
  Gpt2MlpHalf(const std::string& block, const Gpt2Options& options)
      : RegisteredLayer(block + ".mlp", options.layer),
        config_(options.config),
        site_(block + "/mlp.c_proj"),
        norm_(options.norm(registry_, block + ".ln_2")),
        hidden_(Gpt2Options::linear(registry_, name() + ".c_fc", config_.width, config_.hidden, config_.deviation)),
        output_(Gpt2Options::linear(registry_, name() + ".c_proj", config_.hidden, config_.width,
                                    options.residual_deviation())) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor hidden = nn::linear_gelu(norm_(x), hidden_, context, config_.gelu);
    return x + nn::dropout(output_(hidden, context), config_.dropouts.hidden, site_, context);
  }

 private:
  TextConfig config_;
  std::string site_;
  nn::LayerNorm norm_;
  nn::Linear hidden_, output_;
};

// [N, T, width] -> logits [N, T, vocabulary], or of the last token [N, classes]
class Gpt2Head : public nn::RegisteredLayer {
 public:
  Gpt2Head(bool is_lm, const Gpt2Options& options)
      : RegisteredLayer(is_lm ? "lm_head" : "score", options.layer),
        is_lm_(is_lm),
        norm_(options.norm(registry_, "transformer.ln_f")),
        weight_(
            is_lm ? registry_.add_tied_parameter("lm_head.weight", concat(kTokenTable, ".weight"),
                                                 {options.config.vocabulary, options.config.width}, options.init())
                  : registry_.add_parameter("score.weight", {options.classes, options.config.width}, options.init())) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor& x = inputs.front();
    return {nn::linear(norm_(is_lm_ ? rows_to_score(x, context) : last_tokens(x, at_or_none(inputs, 1))),
                       {weight_.value}, {}, context)};
  }

 private:
  bool is_lm_;
  nn::LayerNorm norm_;
  nn::Parameter& weight_;
};

}  // namespace

std::vector<std::string> gpt2_sizes() { return names_of(kGpt2Sizes); }

TextConfig gpt2_size(const std::string& size) {
  const Gpt2Size& sizes = size_named(kGpt2Sizes, size);
  return {.type = TextType::kGpt2,
          .vocabulary = sizes.vocabulary,
          .positions = sizes.context,
          .width = sizes.width,
          .blocks = sizes.blocks,
          .heads = sizes.heads,
          .kv_heads = sizes.heads,
          .head_width = sizes.width / sizes.heads,
          .hidden = 4 * sizes.width,
          .epsilon = 1e-5,
          .gelu = nn::GeluForm::kTanh};
}

Layers make_gpt2(const ModelOptions& options) {
  const Gpt2Options gpt2{.config = text_config(options), .layer = layer_options(options), .classes = options.classes};
  Layers layers;
  layers.push_back(std::make_unique<Gpt2Embeddings>(gpt2));
  for (std::int64_t i = 0; i < gpt2.config.blocks; ++i) {
    const std::string block = concat("transformer.h.", i);
    layers.push_back(std::make_unique<Gpt2AttentionHalf>(block, gpt2));
    layers.push_back(std::make_unique<Gpt2MlpHalf>(block, gpt2));
  }
  layers.push_back(std::make_unique<Gpt2Head>(text_head(options) == TextHead::kLm, gpt2));
  return layers;
}

}  // namespace sluice::models
