// llama: decoders with the names, shapes and numerics of Hugging Face's Llama (Touvron et al. 2023), Mistral and Qwen 2
// for language modelling and classification. `1b` has the sizes of Llama 3.2 1B; nano and tiny have a vocabulary of 256
// bytes.
// Layers: model.embed_tokens, per block i model.layers.i.self_attn and model.layers.i.mlp, and lm_head or score with
// the last norm. The head's matrix may be tied to the token table.
#include <array>

#include "core/concat.h"
#include "models/families.h"
#include "models/text_layers.h"
#include "nn/attention.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/rms_norm.h"
#include "nn/rotary.h"
#include "nn/swiglu.h"

namespace sluice::models {
namespace {

constexpr const char* kLlamaTokens = "model.embed_tokens";

struct LlamaSize {
  const char* name;
  std::int64_t width, blocks, heads, kv_heads, hidden, vocabulary, positions;
};
constexpr std::array kLlamaSizes{
    LlamaSize{"nano", 64, 2, 4, 2, 176, 256, 32},
    LlamaSize{"tiny", 128, 4, 8, 4, 352, 256, 128},
    LlamaSize{"1b", 2048, 16, 32, 8, 8192, 128256, 131072},
};

struct LlamaOptions {
  TextConfig config;
  nn::LayerOptions layer;
  std::int64_t classes;
  std::shared_ptr<const nn::Rotary> rotary;

  [[nodiscard]] nn::Init init() const { return nn::Init::normal(config.deviation); }
  [[nodiscard]] nn::Linear linear(nn::Registry& registry, const std::string& name, std::int64_t in, std::int64_t out,
                                  bool has_bias) const {
    return {registry, name, in, out,
            has_bias ? nn::LinearInit::transformer(config.deviation) : nn::LinearInit::without_bias(config.deviation)};
  }
};

// {tokens, mask, types, positions} -> {[N, T, width], mask, positions}
class LlamaEmbeddings : public nn::RegisteredLayer {
 public:
  explicit LlamaEmbeddings(const LlamaOptions& options)
      : RegisteredLayer(kLlamaTokens, options.layer),
        longest_(options.config.longest()),
        tokens_(registry_, kLlamaTokens, options.config.vocabulary, options.config.width, options.init()) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const TextInputs in = text_inputs(inputs, longest_);
    return border({tokens_(in.tokens, context), in.mask, in.positions});
  }

 private:
  std::int64_t longest_;
  nn::Embedding tokens_;
};

// x + attention(input_layernorm(x)): [N, T, width] -> the same shape
class LlamaAttentionHalf : public nn::RegisteredLayer {
 public:
  LlamaAttentionHalf(const std::string& block, const LlamaOptions& options)
      : RegisteredLayer(block + ".self_attn", options.layer),
        config_(options.config),
        rotary_(options.rotary),
        norm_(registry_, block + ".input_layernorm", config_.width, config_.epsilon),
        query_(linear_in(options, ".q_proj", config_.heads)),
        key_(linear_in(options, ".k_proj", config_.kv_heads)),
        value_(linear_in(options, ".v_proj", config_.kv_heads)),
        output_(options.linear(registry_, name() + ".o_proj", config_.heads * config_.head_width, config_.width,
                               config_.has_output_bias)) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor& x = inputs.front();
    const nn::AttentionOptions options{.heads = config_.heads,
                                       .dropout = config_.dropouts.attention,
                                       .site = name(),
                                       .causal = true,
                                       .kv_heads = config_.kv_heads};
    const std::array parts{&query_, &key_, &value_};
    const at::Tensor packed =
        (*rotary_)(nn::linear_packed(norm_(x), parts, context), config_.heads, config_.kv_heads, at_or_none(inputs, 2));
    nn::Tensors outputs = inputs;
    outputs.front() = x + output_(nn::self_attention(packed, options, context, at_or_none(inputs, 1)), context);
    return outputs;
  }

 private:
  [[nodiscard]] nn::Linear linear_in(const LlamaOptions& options, const char* part, std::int64_t heads) {
    return options.linear(registry_, name() + part, config_.width, heads * config_.head_width, config_.has_qkv_bias);
  }

  TextConfig config_;
  std::shared_ptr<const nn::Rotary> rotary_;
  nn::RmsNorm norm_;
  nn::Linear query_, key_, value_, output_;
};

// x + mlp(post_attention_layernorm(x)): [N, T, width] -> the same shape
class LlamaMlpHalf : public nn::RegisteredLayer {
 public:
  LlamaMlpHalf(const std::string& block, const LlamaOptions& options)
      : RegisteredLayer(block + ".mlp", options.layer),
        norm_(registry_, block + ".post_attention_layernorm", options.config.width, options.config.epsilon),
        gate_(linear(options, ".gate_proj", options.config.width, options.config.hidden)),
        up_(linear(options, ".up_proj", options.config.width, options.config.hidden)),
        down_(linear(options, ".down_proj", options.config.hidden, options.config.width)) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return x + down_(nn::linear_swiglu(norm_(x), gate_, up_, context), context);
  }

 private:
  [[nodiscard]] nn::Linear linear(const LlamaOptions& options, const char* part, std::int64_t in, std::int64_t out) {
    return options.linear(registry_, name() + part, in, out, options.config.has_mlp_bias);
  }

  nn::RmsNorm norm_;
  nn::Linear gate_, up_, down_;
};

// [N, T, width] -> logits [N, T, vocabulary], of rows_to_score() alone, or of the last token [N, classes]
class LlamaHead : public nn::RegisteredLayer {
 public:
  LlamaHead(bool is_lm, const LlamaOptions& options)
      : RegisteredLayer(is_lm ? "lm_head" : "score", options.layer),
        is_lm_(is_lm),
        norm_(registry_, "model.norm", options.config.width, options.config.epsilon),
        weight_(add_weight(options)) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor& x = inputs.front();
    return {nn::linear(norm_(is_lm_ ? rows_to_score(x, context) : last_tokens(x, at_or_none(inputs, 1))),
                       {weight_.value}, {}, context)};
  }

 private:
  nn::Parameter& add_weight(const LlamaOptions& options) {
    const std::vector<std::int64_t> sizes{is_lm_ ? options.config.vocabulary : options.classes, options.config.width};
    if (is_lm_ && options.config.is_tied)
      return registry_.add_tied_parameter("lm_head.weight", concat(kLlamaTokens, ".weight"), sizes, options.init());
    return registry_.add_parameter(name() + ".weight", sizes, options.init());
  }

  bool is_lm_;
  nn::RmsNorm norm_;
  nn::Parameter& weight_;
};

}  // namespace

std::vector<std::string> llama_sizes() { return names_of(kLlamaSizes); }

TextConfig llama_size(const std::string& size) {
  const LlamaSize& sizes = size_named(kLlamaSizes, size);
  TextConfig config{.type = TextType::kLlama,
                    .vocabulary = sizes.vocabulary,
                    .positions = sizes.positions,
                    .width = sizes.width,
                    .blocks = sizes.blocks,
                    .heads = sizes.heads,
                    .kv_heads = sizes.kv_heads,
                    .head_width = sizes.width / sizes.heads,
                    .hidden = sizes.hidden,
                    .epsilon = 1e-5,
                    .has_qkv_bias = false,
                    .has_output_bias = false,
                    .has_mlp_bias = false};
  config.rotary = {.head_width = config.head_width, .positions = config.positions, .theta = 500000};
  if (size == "1b") {
    config.rotary.scaling = nn::RotaryScaling::kLlama3;
    config.rotary.factor = 32;
  }
  return config;
}

Layers make_llama(const ModelOptions& options) {
  const TextConfig config = text_config(options);
  const LlamaOptions llama{.config = config,
                           .layer = layer_options(options),
                           .classes = options.classes,
                           .rotary = std::make_shared<const nn::Rotary>(config.rotary)};
  Layers layers;
  layers.push_back(std::make_unique<LlamaEmbeddings>(llama));
  for (std::int64_t i = 0; i < config.blocks; ++i) {
    const std::string block = concat("model.layers.", i);
    layers.push_back(std::make_unique<LlamaAttentionHalf>(block, llama));
    layers.push_back(std::make_unique<LlamaMlpHalf>(block, llama));
  }
  layers.push_back(std::make_unique<LlamaHead>(text_head(options) == TextHead::kLm, llama));
  return layers;
}

}  // namespace sluice::models
