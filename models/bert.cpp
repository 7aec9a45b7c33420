// bert: encoders with the names, shapes and numerics of Hugging Face's BERT (Devlin et al. 2019), RoBERTa (Liu et al.
// 2019) and DistilBERT (Sanh et al. 2019) for masked language modelling, classification of texts and of tokens, and
// question answering. nano and tiny have a vocabulary of 256 bytes.
// Layers of BERT: bert.embeddings, per block i bert.encoder.layer.i.attention and bert.encoder.layer.i.mlp, and the
// head with the pooler. In transformers the row of the padding token is not trained; here it is, if `mask` does not
// exclude it.
#include <array>

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

struct BertSize {
  const char* name;
  std::int64_t width, blocks, heads, vocabulary, positions;
};
constexpr std::array kBertSizes{
    BertSize{"nano", 32, 2, 2, 256, 32},
    BertSize{"tiny", 128, 4, 4, 256, 128},
    BertSize{"base", 768, 12, 12, 30522, 512},
    BertSize{"large", 1024, 24, 16, 30522, 512},
};

struct BertOptions {
  TextConfig config;
  nn::LayerOptions layer;
  std::int64_t classes;

  [[nodiscard]] bool is_distilbert() const { return config.type == TextType::kDistilbert; }
  [[nodiscard]] std::string prefix() const { return name_of(config.type); }
  [[nodiscard]] std::string block(std::int64_t i) const {
    return concat(prefix(), is_distilbert() ? ".transformer.layer." : ".encoder.layer.", i);
  }
  [[nodiscard]] nn::Linear linear(nn::Registry& registry, const std::string& name, std::int64_t in,
                                  std::int64_t out) const {
    return {registry, name, in, out, nn::LinearInit::transformer(config.deviation)};
  }
  [[nodiscard]] nn::LayerNorm norm(nn::Registry& registry, const std::string& name) const {
    return {registry, name, config.width, config.epsilon};
  }
  [[nodiscard]] std::string token_table() const { return prefix() + ".embeddings.word_embeddings"; }
};

// {tokens, mask, types, positions} -> {[N, T, width], mask}
class BertEmbeddings : public nn::RegisteredLayer {
 public:
  explicit BertEmbeddings(const BertOptions& options)
      : RegisteredLayer(options.prefix() + ".embeddings", options.layer),
        config_(options.config),
        tokens_(registry_, options.token_table(), config_.vocabulary, config_.width, init()),
        positions_(registry_.add_parameter(name() + ".position_embeddings.weight", {config_.positions, config_.width},
                                           init(), nn::ParameterRole::kPosition)),
        types_(options.is_distilbert()
                   ? nullptr
                   : &registry_.add_parameter(name() + ".token_type_embeddings.weight", {config_.types, config_.width},
                                              init(), nn::ParameterRole::kPosition)),
        norm_(options.norm(registry_, name() + ".LayerNorm")) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const TextInputs in = text_inputs(inputs, config_.longest());
    at::Tensor x = tokens_(in.tokens, context);
    if (types_ != nullptr)
      x = x + (in.types.defined() ? nn::embedding(in.types, types_->value, nullptr) : types_->value.select(0, 0));
    x = x + position_rows(in);
    return border({nn::dropout(norm_(x), config_.dropouts.embedding, name(), context), in.mask});
  }

 private:
  [[nodiscard]] nn::Init init() const { return nn::Init::normal(config_.deviation); }

  // RoBERTa counts the tokens that are not padding.
  [[nodiscard]] at::Tensor position_rows(const TextInputs& in) const {
    if (in.positions.defined() || config_.type != TextType::kRoberta)
      return models::position_rows(positions_, in.positions, in.tokens.size(1), config_.first_position());
    const at::Tensor is_text = in.tokens.ne(config_.padding);
    return nn::embedding(is_text.cumsum(1) * is_text + config_.padding, positions_.value, nullptr);
  }

  TextConfig config_;
  nn::Embedding tokens_;
  nn::Parameter& positions_;
  nn::Parameter* types_;
  nn::LayerNorm norm_;
};

// norm(x + attention(x)): [N, T, width] -> the same shape
class BertAttentionHalf : public nn::RegisteredLayer {
 public:
  BertAttentionHalf(const std::string& block, const BertOptions& options)
      : RegisteredLayer(block + ".attention", options.layer),
        config_(options.config),
        site_(block + "/attention"),
        output_site_(block + "/attention.output"),
        query_(linear(options, ".self.query", ".q_lin")),
        key_(linear(options, ".self.key", ".k_lin")),
        value_(linear(options, ".self.value", ".v_lin")),
        output_(linear(options, ".output.dense", ".out_lin")),
        norm_(options.norm(registry_,
                           options.is_distilbert() ? block + ".sa_layer_norm" : name() + ".output.LayerNorm")) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor& x = inputs.front();
    const nn::AttentionOptions options{.heads = config_.heads, .dropout = config_.dropouts.attention, .site = site_};
    const std::array parts{&query_, &key_, &value_};
    const at::Tensor attended =
        nn::self_attention(nn::linear_packed(x, parts, context), options, context, at_or_none(inputs, 1));
    nn::Tensors outputs = inputs;
    outputs.front() =
        norm_(x + nn::dropout(output_(attended, context), config_.dropouts.hidden, output_site_, context));
    return outputs;
  }

 private:
  [[nodiscard]] nn::Linear linear(const BertOptions& options, const char* of_bert, const char* of_distilbert) {
    return options.linear(registry_, name() + (options.is_distilbert() ? of_distilbert : of_bert), config_.width,
                          config_.width);
  }

  TextConfig config_;
  std::string site_, output_site_;
  nn::Linear query_, key_, value_, output_;
  nn::LayerNorm norm_;
};

// norm(x + mlp(x)): [N, T, width] -> the same shape
class BertMlpHalf : public nn::RegisteredLayer {
 public:
  BertMlpHalf(const std::string& block, const BertOptions& options)
      : RegisteredLayer(block + ".mlp", options.layer),
        config_(options.config),
        site_(block + "/output"),
        hidden_(options.linear(registry_, block + (options.is_distilbert() ? ".ffn.lin1" : ".intermediate.dense"),
                               config_.width, config_.hidden)),
        output_(options.linear(registry_, block + (options.is_distilbert() ? ".ffn.lin2" : ".output.dense"),
                               config_.hidden, config_.width)),
        norm_(options.norm(registry_, block + (options.is_distilbert() ? ".output_layer_norm" : ".output.LayerNorm"))) {
  }

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    const at::Tensor hidden = nn::linear_gelu(x, hidden_, context, config_.gelu);
    return norm_(x + nn::dropout(output_(hidden, context), config_.dropouts.hidden, site_, context));
  }

 private:
  TextConfig config_;
  std::string site_;
  nn::Linear hidden_, output_;
  nn::LayerNorm norm_;
};

struct MlmNames {
  const char *layer, *decoder, *dense, *norm, *bias;
};
MlmNames mlm_names(TextType type) {
  if (type == TextType::kRoberta)
    return {"lm_head", "lm_head.decoder.weight", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"};
  if (type == TextType::kDistilbert)
    return {"vocab_projector", "vocab_projector.weight", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"};
  return {"cls.predictions", "cls.predictions.decoder.weight", "cls.predictions.transform.dense",
          "cls.predictions.transform.LayerNorm", "cls.predictions.bias"};
}

// [N, T, width] -> logits [N, T, vocabulary], or of rows_to_score() alone; the matrix is tied to the token table.
class BertMlmHead : public nn::RegisteredLayer {
 public:
  BertMlmHead(const MlmNames& names, const BertOptions& options)
      : RegisteredLayer(names.layer, options.layer),
        gelu_(options.config.type == TextType::kRoberta ? nn::GeluForm::kExact : options.config.gelu),
        decoder_(registry_.add_tied_parameter(names.decoder, options.token_table() + ".weight",
                                              {options.config.vocabulary, options.config.width},
                                              nn::Init::normal(options.config.deviation))),
        dense_(options.linear(registry_, names.dense, options.config.width, options.config.width)),
        norm_(options.norm(registry_, names.norm)),
        bias_(registry_.add_parameter(names.bias, {options.config.vocabulary}, nn::Init::constant(0),
                                      nn::ParameterRole::kBias)) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor x = norm_(nn::linear_gelu(rows_to_score(inputs.front(), context), dense_, context, gelu_));
    return {nn::linear(x, {decoder_.value}, {bias_.value}, context)};
  }

 private:
  nn::GeluForm gelu_;
  nn::Parameter& decoder_;
  nn::Linear dense_;
  nn::LayerNorm norm_;
  nn::Parameter& bias_;
};

// The first token's [N, T, width] -> logits [N, classes]. RoBERTa drops values before the first product, too.
class BertTextHead : public nn::RegisteredLayer {
 public:
  explicit BertTextHead(const BertOptions& options)
      : RegisteredLayer("classifier", options.layer),
        type_(options.config.type),
        dropout_(options.config.dropouts.classify),
        dense_(options.linear(registry_, dense_name(), options.config.width, options.config.width)),
        output_(options.linear(registry_, type_ == TextType::kRoberta ? "classifier.out_proj" : "classifier",
                               options.config.width, options.classes)) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    at::Tensor x = inputs.front().select(1, 0);
    if (type_ == TextType::kRoberta) x = nn::dropout(x, dropout_, "classifier/input", context);
    x = dense_(x, context);
    x = type_ == TextType::kDistilbert ? at::relu(x) : at::tanh(x);
    return {output_(nn::dropout(x, dropout_, name(), context), context)};
  }

 private:
  [[nodiscard]] const char* dense_name() const {
    return type_ == TextType::kBert      ? "bert.pooler.dense"
           : type_ == TextType::kRoberta ? "classifier.dense"
                                         : "pre_classifier";
  }

  TextType type_;
  double dropout_;
  nn::Linear dense_, output_;
};

// [N, T, width] -> logits [N, T, classes]. is_over_tokens: the loss is a softmax over T, from which padding is left
// out.
class BertTokenHead : public nn::RegisteredLayer {
 public:
  BertTokenHead(const char* name, double dropout, std::int64_t classes, bool is_over_tokens, const BertOptions& options)
      : RegisteredLayer(name, options.layer),
        dropout_(dropout),
        is_over_tokens_(is_over_tokens),
        output_(options.linear(registry_, name, options.config.width, classes)) {}

  nn::Tensors forward_all(const nn::Tensors& inputs, const nn::ForwardContext& context) override {
    const at::Tensor logits = output_(nn::dropout(inputs.front(), dropout_, name(), context), context);
    const at::Tensor mask = at_or_none(inputs, 1);
    if (!is_over_tokens_ || !mask.defined()) return {logits};
    return {logits.masked_fill(mask.eq(0).unsqueeze(2), kLeftOut)};
  }

 private:
  static constexpr double kLeftOut = -1e30;  // finite, because a text may be padding alone

  double dropout_;
  bool is_over_tokens_;
  nn::Linear output_;
};

std::unique_ptr<nn::Layer> make_head(TextHead head, const BertOptions& options) {
  const TextDropouts& dropouts = options.config.dropouts;
  if (head == TextHead::kClassify) return std::make_unique<BertTextHead>(options);
  if (head == TextHead::kTokens)
    return std::make_unique<BertTokenHead>("classifier", dropouts.tokens, options.classes, false, options);
  if (head == TextHead::kQa) return std::make_unique<BertTokenHead>("qa_outputs", dropouts.qa, 2, true, options);
  return std::make_unique<BertMlmHead>(mlm_names(options.config.type), options);
}

}  // namespace

std::vector<std::string> bert_sizes() { return names_of(kBertSizes); }

TextConfig bert_size(const std::string& size) {
  const BertSize& sizes = size_named(kBertSizes, size);
  return {.type = TextType::kBert,
          .vocabulary = sizes.vocabulary,
          .types = 2,
          .positions = sizes.positions,
          .width = sizes.width,
          .blocks = sizes.blocks,
          .heads = sizes.heads,
          .kv_heads = sizes.heads,
          .head_width = sizes.width / sizes.heads,
          .hidden = 4 * sizes.width,
          .padding = 0,
          .epsilon = 1e-12};
}

Layers make_bert(const ModelOptions& options) {
  const BertOptions bert{.config = text_config(options), .layer = layer_options(options), .classes = options.classes};
  Layers layers;
  layers.push_back(std::make_unique<BertEmbeddings>(bert));
  for (std::int64_t i = 0; i < bert.config.blocks; ++i) {
    layers.push_back(std::make_unique<BertAttentionHalf>(bert.block(i), bert));
    layers.push_back(std::make_unique<BertMlpHalf>(bert.block(i), bert));
  }
  layers.push_back(make_head(text_head(options), bert));
  return layers;
}

}  // namespace sluice::models
