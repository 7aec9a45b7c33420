#include "text/json_components.h"

#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "text/utf8.h"

namespace sluice::text {
namespace {

// Calls read(node, depth) for each component of a (nested) Sequence and joins the lists.
template <typename Steps, typename Read>
void read_sequence(const JsonNode& list, int depth, Steps& steps, Read&& read) {
  constexpr int kMostDepth = 16;
  constexpr std::size_t kMostSteps = 64;
  if (depth >= kMostDepth) list.reject("at most 16 sequences within each other");
  for (const JsonNode& item : list.items()) {
    read(item, depth + 1, steps);
    if (steps.size() > kMostSteps) list.reject("at most 64 steps");
  }
}

Pattern read_pattern(const JsonNode& node) {
  if (node.has("String")) {
    const std::string text = node.text("String");
    node.require(!text.empty(), "a text that is not empty");
    return Pattern::literal(text);
  }
  if (node.has("Regex")) return Pattern::regex(node.text("Regex"), node.where());
  node.reject("\"String\" or \"Regex\"");
}

std::string read_character(const JsonNode& node) {
  std::string text = node.text();
  node.require(count_points(text) == 1, "one character");
  return text;
}

void add_bert_steps(const JsonNode& node, std::vector<NormalizerStep>& steps) {
  const bool lowercase = node.flag("lowercase");
  if (node.flag("clean_text")) steps.emplace_back(PointStep::kClean);
  if (node.flag("handle_chinese_chars")) steps.emplace_back(PointStep::kIsolateCjk);
  if (node.flag("strip_accents", lowercase)) {
    steps.emplace_back(PointStep::kNfd);
    steps.emplace_back(PointStep::kStripNonspacing);
  }
  if (lowercase) steps.emplace_back(PointStep::kLower);
}

void add_normalizer(const JsonNode& node, int depth, std::vector<NormalizerStep>& steps) {
  static const std::map<std::string, PointStep, std::less<>> kPointSteps = {
      {"NFC", PointStep::kNfc},   {"NFD", PointStep::kNfd},         {"NFKC", PointStep::kNfkc},
      {"NFKD", PointStep::kNfkd}, {"Lowercase", PointStep::kLower}, {"StripAccents", PointStep::kStripMarks},
  };
  const std::string type = node.type();
  if (const auto found = kPointSteps.find(type); found != kPointSteps.end()) {
    steps.emplace_back(found->second);
  } else if (type == "Sequence") {
    read_sequence(node.at("normalizers"), depth, steps, add_normalizer);
  } else if (type == "BertNormalizer") {
    add_bert_steps(node, steps);
  } else if (type == "Replace") {
    steps.emplace_back(
        ReplaceStep{std::make_shared<const Pattern>(read_pattern(node.at("pattern"))), node.text("content")});
  } else if (type == "Prepend") {
    steps.emplace_back(PrependStep{node.text("prepend")});
  } else if (type == "Strip") {
    steps.emplace_back(StripStep{node.flag("strip_left"), node.flag("strip_right")});
  } else {
    node.reject_type();
  }
}

Delimiter read_delimiter(const JsonNode& node) {
  static const std::map<std::string, Delimiter, std::less<>> kNames = {
      {"Removed", Delimiter::kRemoved},
      {"Isolated", Delimiter::kIsolated},
      {"MergedWithPrevious", Delimiter::kMergedWithPrevious},
      {"MergedWithNext", Delimiter::kMergedWithNext},
      {"Contiguous", Delimiter::kContiguous},
  };
  const auto found = kNames.find(node.text());
  node.require(found != kNames.end(), "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  return found->second;
}

void add_byte_level(const JsonNode& node, std::vector<PreTokenizerStep>& steps) {
  constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  if (node.flag("add_prefix_space")) steps.emplace_back(ByteLevelPrefix{});
  if (node.flag("use_regex", true)) {
    steps.emplace_back(PatternSplit{Pattern::regex(kGpt2, node.where()), Delimiter::kIsolated, false});
  }
  steps.emplace_back(ByteLevelMap{});
}

MetaspaceSplit read_metaspace(const JsonNode& node) {
  using Prepend = MetaspaceSplit::Prepend;
  Prepend prepend = Prepend::kAlways;
  if (node.has("prepend_scheme")) {
    const std::string scheme = node.text("prepend_scheme");
    node.at("prepend_scheme")
        .require(scheme == "first" || scheme == "never" || scheme == "always", "first, never or always");
    prepend = scheme == "first" ? Prepend::kFirst : scheme == "never" ? Prepend::kNever : Prepend::kAlways;
  }
  if (!node.flag("add_prefix_space", true)) {
    node.require(prepend == Prepend::kNever || !node.has("prepend_scheme"),
                 "prepend_scheme \"never\" without add_prefix_space");
    prepend = Prepend::kNever;
  }
  return {prepend, read_character(node.at("replacement")), node.flag("split", true)};
}

void add_pre_tokenizer(const JsonNode& node, int depth, std::vector<PreTokenizerStep>& steps) {
  const std::string type = node.type();
  if (type == "Sequence") {
    read_sequence(node.at("pretokenizers"), depth, steps, add_pre_tokenizer);
  } else if (type == "BertPreTokenizer") {
    steps.emplace_back(BertSplit{});
  } else if (type == "ByteLevel") {
    add_byte_level(node, steps);
  } else if (type == "Split") {
    steps.emplace_back(
        PatternSplit{read_pattern(node.at("pattern")), read_delimiter(node.at("behavior")), node.flag("invert")});
  } else if (type == "Whitespace") {
    steps.emplace_back(WordSplit{});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(CharacterSplit{Property::kSpace, Delimiter::kRemoved});
  } else if (type == "Metaspace") {
    steps.emplace_back(read_metaspace(node));
  } else if (type == "Digits") {
    const bool single = node.flag("individual_digits");
    steps.emplace_back(CharacterSplit{Property::kNumeric, single ? Delimiter::kIsolated : Delimiter::kContiguous});
  } else if (type == "Punctuation") {
    const bool has_behavior = node.has("behavior");
    steps.emplace_back(CharacterSplit{Property::kPunctuation,
                                      has_behavior ? read_delimiter(node.at("behavior")) : Delimiter::kIsolated});
  } else {
    node.reject_type();
  }
}

TokenId read_id(const JsonNode& node, const std::string& token, const TokenIds& id_of) {
  const TokenId id = node.number();
  if (id_of(token) != id) node.reject(concat("the id of token \"", printable(token), "\""));
  return id;
}

// ["[SEP]", 102]
TokenId read_token_pair(const JsonNode& node, const TokenIds& id_of) {
  const auto items = node.items();
  node.require(items.size() == 2, "a token and its id");
  return read_id(items[1], items[0].text(), id_of);
}

TemplatePiece special(std::vector<TokenId> ids, std::uint8_t type_id) { return {-1, std::move(ids), type_id}; }

void read_bert_processing(const JsonNode& node, const TokenIds& id_of, PostProcessor& result) {
  const TemplatePiece first{0, {}, 0};
  const TokenId cls = read_token_pair(node.at("cls"), id_of);
  const TokenId sep = read_token_pair(node.at("sep"), id_of);
  result.single = {special({cls}, 0), first, special({sep}, 0)};
  result.is_roberta = node.type() == "RobertaProcessing";
  if (!result.is_roberta) {
    result.pair = {special({cls}, 0), first, special({sep}, 0), {1, {}, 1}, special({sep}, 1)};
    return;
  }
  result.pair = {special({cls}, 0), first, special({sep, sep}, 0), {1, {}, 0}, special({sep}, 0)};
  if (result.trims_offsets) {
    throw ConfigError(node.where(), ": RobertaProcessing after a ByteLevel that trims offsets is not supported");
  }
  result.trims_offsets = node.flag("trim_offsets");
  result.adds_prefix_space = node.flag("add_prefix_space");
}

std::uint8_t read_type_id(const JsonNode& node) {
  const std::int32_t type = node.number("type_id");
  node.at("type_id").require(type < 128, "0 to 127");
  return static_cast<std::uint8_t>(type);
}

TemplatePiece read_piece(const JsonNode& node, const JsonNode& tokens, const TokenIds& id_of) {
  if (node.has("Sequence")) {
    const JsonNode piece = node.at("Sequence");
    const std::string id = piece.text("id");
    piece.at("id").require(id == "A" || id == "B", "A or B");
    return {id == "A" ? 0 : 1, {}, read_type_id(piece)};
  }
  const JsonNode piece = node.at("SpecialToken");
  const JsonNode token = tokens.at(piece.text("id"));
  const auto names = token.at("tokens").items();
  std::vector<TokenId> ids;
  for (const JsonNode& id : token.at("ids").items()) {
    token.require(ids.size() < names.size(), "as many tokens as ids");
    ids.push_back(read_id(id, names[ids.size()].text(), id_of));
  }
  return special(std::move(ids), read_type_id(piece));
}

Template read_template(const JsonNode& node, const JsonNode& tokens, const TokenIds& id_of, bool is_pair) {
  Template pieces;
  int uses[2] = {0, 0};
  for (const JsonNode& item : node.items()) {
    pieces.push_back(read_piece(item, tokens, id_of));
    if (pieces.back().sequence >= 0) ++uses[pieces.back().sequence];
  }
  node.require(uses[0] <= 1 && uses[1] <= (is_pair ? 1 : 0),
               is_pair ? "each text at most once" : "text A at most once");
  return pieces;
}

void read_post_processor_into(const JsonNode& node, const TokenIds& id_of, int depth, PostProcessor& result,
                              bool& has_template) {
  const std::string type = node.type();
  if (type == "Sequence") {
    const JsonNode list = node.at("processors");
    if (depth > 0) list.reject("no sequence within a sequence");
    for (const JsonNode& item : list.items()) read_post_processor_into(item, id_of, depth + 1, result, has_template);
    return;
  }
  // `tokenizers` can merge the encodings only once, and trims what the last template has not merged.
  if (has_template)
    throw ConfigError(node.where(), ": \"", printable(type), "\" after another post-processor is not supported");
  if (type == "ByteLevel") {
    if (result.trims_offsets) node.reject("one ByteLevel");
    result.trims_offsets = node.flag("trim_offsets");
    result.adds_prefix_space = node.flag("add_prefix_space");
    return;
  }
  has_template = true;
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    read_bert_processing(node, id_of, result);
  } else if (type == "TemplateProcessing") {
    result.single = read_template(node.at("single"), node.at("special_tokens"), id_of, false);
    result.pair = read_template(node.at("pair"), node.at("special_tokens"), id_of, true);
  } else {
    node.reject_type();
  }
}

void add_decoder(const JsonNode& node, int depth, std::vector<DecoderStep>& steps) {
  const std::string type = node.type();
  if (type == "Sequence") {
    read_sequence(node.at("decoders"), depth, steps, add_decoder);
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteLevelDecode{});
  } else if (type == "WordPiece") {
    steps.emplace_back(WordPieceDecode{node.text("prefix"), node.flag("cleanup")});
  } else if (type == "Metaspace") {
    const MetaspaceSplit metaspace = read_metaspace(node);
    steps.emplace_back(
        MetaspaceDecode{Pattern::literal(metaspace.replacement), metaspace.prepend != MetaspaceSplit::Prepend::kNever});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ByteFallbackDecode{});
  } else if (type == "Fuse") {
    steps.emplace_back(FuseDecode{});
  } else if (type == "Strip") {
    steps.emplace_back(StripDecode{read_character(node.at("content")), static_cast<std::size_t>(node.number("start")),
                                   static_cast<std::size_t>(node.number("stop"))});
  } else if (type == "Replace") {
    steps.emplace_back(ReplaceDecode{read_pattern(node.at("pattern")), node.text("content")});
  } else {
    node.reject_type();
  }
}

template <typename Step>
std::vector<Step> read_steps(const JsonNode& node, void (&add)(const JsonNode&, int, std::vector<Step>&)) {
  std::vector<Step> steps;
  add(node, 0, steps);
  return steps;
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const JsonNode& node) { return read_steps(node, add_normalizer); }

std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonNode& node) { return read_steps(node, add_pre_tokenizer); }

PostProcessor read_post_processor(const JsonNode& node, const TokenIds& id_of) {
  PostProcessor result;
  bool has_template = false;
  read_post_processor_into(node, id_of, 0, result, has_template);
  return result;
}

std::vector<DecoderStep> read_decoder(const JsonNode& node) { return read_steps(node, add_decoder); }

}  // namespace sluice::text
