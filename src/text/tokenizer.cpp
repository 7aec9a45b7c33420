#include "text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/unicode.h"
#include "text/word_cache.h"

namespace sluice::text {
namespace {

// Spaces in the form of byte-level tokens count, too.
TextTokens::Spaces spaces_of(std::string_view token) {
  const auto is_space = [](char32_t point) {
    return point == byte_character(' ') || has_property(point, Property::kSpace);
  };
  TextTokens::Spaces spaces{};
  bool is_leading = true;
  for (const char* at = token.data(); at != token.data() + token.size();) {
    const bool space = is_space(next_point(at));
    is_leading &= space;
    spaces.leading += is_leading ? 1 : 0;
    spaces.trailing = space ? spaces.trailing + 1 : 0;
  }
  return spaces;
}

}  // namespace

struct Tokenizer::Scratch {
  std::string repaired;
  Normalizer::Scratch normalizer;
  PreTokenized text;
  TextTokens first, second;
  std::unordered_map<std::uint64_t, WordCache> caches;  // by Tokenizer::cache_key_
  WordCache* cache = nullptr;
  std::uint64_t cache_key = 0;

  void select_cache(std::uint64_t key) {
    constexpr std::size_t kMostCaches = 8;
    if (cache_key == key) return;
    cache_key = 0;  // if memory runs out, no dangling cache is left
    if (caches.size() >= kMostCaches && !caches.contains(key)) caches.clear();
    cache = &caches[key];
    cache_key = key;
  }
  [[nodiscard]] std::size_t bytes_kept() const {
    std::size_t bytes = repaired.capacity();
    for (const AlignedText* kept : {&normalizer.text, &normalizer.other, &text.text, &text.other_text}) {
      bytes = std::max(bytes, kept->bytes.capacity());
    }
    return bytes;
  }
};

// The scratch of this thread for one call.
class Tokenizer::ScratchUse {
 public:
  explicit ScratchUse(std::uint64_t cache_key) : scratch_(of_thread()) { scratch_.select_cache(cache_key); }
  ~ScratchUse() {
    if (scratch_.bytes_kept() > kMostKeptBytes) scratch_ = Scratch();
  }
  ScratchUse(const ScratchUse&) = delete;
  ScratchUse& operator=(const ScratchUse&) = delete;

  [[nodiscard]] Scratch& get() const { return scratch_; }

 private:
  static Scratch& of_thread() {
    thread_local Scratch scratch;
    return scratch;
  }

  Scratch& scratch_;
};

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  static std::atomic<std::uint64_t> next_key = 1;
  cache_key_ = next_key++;
  if (!parts_.post_processor.trims_offsets) return;
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  for (TokenId id = 0; id < vocabulary.end_id(); ++id) id_spaces_.push_back(spaces_of(vocabulary.token(id)));
}

void Tokenizer::tokenize(std::string_view text, TextTokens& tokens, Scratch& scratch) const {
  if (text.size() > kMostTextBytes) {
    throw DataError("a text of ", text.size(), " bytes is too long for a tokenizer; split it into parts of 256 MiB");
  }
  text = repair_utf8(text, scratch.repaired);
  PreTokenized& pieces = scratch.text;
  pieces.text.clear();
  pieces.pieces.clear();
  const auto add_piece = [&](std::size_t begin, std::size_t end, TokenId id) {
    if (begin < end) pieces.pieces.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), id});
  };
  std::uint32_t character = 0;  // of the text, at last_end
  std::size_t last_end = 0;
  parts_.added_tokens.for_each_part_of_original(text, [&](std::size_t begin, std::size_t end, TokenId id) {
    const std::string_view part = text.substr(begin, end - begin);
    if (begin < last_end) character -= static_cast<std::uint32_t>(count_points(text.substr(begin, last_end - begin)));
    last_end = end;
    const std::size_t at = pieces.text.size();
    if (id != kNoToken) {
      character = pieces.text.append_original(part, character);
      return add_piece(at, pieces.text.size(), id);
    }
    parts_.normalizer.append(part, character, pieces.text, scratch.normalizer);
    if (end < text.size()) character += static_cast<std::uint32_t>(count_points(part));
    if (!parts_.added_tokens.has_normalized()) return add_piece(at, pieces.text.size(), kNoToken);
    const std::string_view normal = std::string_view(pieces.text.bytes).substr(at);
    parts_.added_tokens.for_each_part_of_normalized(
        normal, [&](std::size_t from, std::size_t to, TokenId found) { add_piece(at + from, at + to, found); });
  });
  pre_tokenize(parts_.pre_tokenizer, pieces);
  tokens.clear();
  tokenize_pieces(tokens, scratch);
}

void Tokenizer::tokenize_pieces(TextTokens& tokens, Scratch& scratch) const {
  const std::string_view bytes = scratch.text.text.bytes;
  const CharRange* const origin = scratch.text.text.origin.data();
  const bool needs_spaces = parts_.post_processor.trims_offsets;
  for (const Piece& piece : scratch.text.pieces) {
    const std::string_view word = bytes.substr(piece.begin, piece.end - piece.begin);
    if (piece.added != kNoToken) {
      tokens.ids.push_back(piece.added);
      tokens.offsets.push_back({origin[piece.begin].begin, origin[piece.end - 1].end});
      if (needs_spaces) tokens.spaces.push_back(spaces_of(word));
      continue;
    }
    const CharRange* from = origin + piece.begin;
    for (const WordToken& token : scratch.cache->tokens_of(word, *parts_.model)) {
      tokens.ids.push_back(token.id);
      tokens.offsets.push_back({from[0].begin, token.bytes == 0 ? from[0].begin : from[token.bytes - 1].end});
      if (needs_spaces) tokens.spaces.push_back(id_spaces_[static_cast<std::size_t>(token.id)]);
      from += token.bytes;
    }
  }
}

void Tokenizer::encode(std::string_view text, std::optional<std::string_view> pair, bool adds_special_tokens,
                       Encoding& out) const {
  const ScratchUse use(cache_key_);
  Scratch& scratch = use.get();
  tokenize(text, scratch.first, scratch);
  if (pair) tokenize(*pair, scratch.second, scratch);
  parts_.post_processor.encode(scratch.first, pair ? &scratch.second : nullptr, adds_special_tokens, out);
}

Encoding Tokenizer::encode(std::string_view text, std::optional<std::string_view> pair,
                           bool adds_special_tokens) const {
  Encoding out;
  encode(text, pair, adds_special_tokens, out);
  return out;
}

std::vector<Encoding> Tokenizer::encode_windows(std::string_view text, std::optional<std::string_view> pair,
                                                bool adds_special_tokens, const Truncation& truncation) const {
  const ScratchUse use(cache_key_);
  Scratch& scratch = use.get();
  tokenize(text, scratch.first, scratch);
  if (pair) tokenize(*pair, scratch.second, scratch);
  return parts_.post_processor.windows(scratch.first, pair ? &scratch.second : nullptr, adds_special_tokens,
                                       truncation);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skips_special_tokens) const {
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    const std::string* added = parts_.added_tokens.decoded(id);
    if (added == nullptr && !parts_.model->vocabulary().has(id)) continue;
    const std::string& token = added != nullptr ? *added : parts_.model->vocabulary().token(id);
    if (!skips_special_tokens || !parts_.added_tokens.is_special(token)) tokens.push_back(token);
  }
  return decode_tokens(parts_.decoder, std::move(tokens));
}

TokenId Tokenizer::find(std::string_view token) const {
  const TokenId added = parts_.added_tokens.find(std::string(token));
  return added != kNoToken ? added : parts_.model->vocabulary().find(token);
}

std::optional<std::string> Tokenizer::token(TokenId id) const {
  if (const std::string* added = parts_.added_tokens.decoded(id)) return *added;
  if (!parts_.model->vocabulary().has(id)) return {};
  return parts_.model->vocabulary().token(id);
}

TokenId Tokenizer::end_id() const {
  return std::max(parts_.added_tokens.end_id(), parts_.model->vocabulary().end_id());
}

}  // namespace sluice::text
