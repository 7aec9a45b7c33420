// The models of SentencePiece: unigram (the most probable segmentation) and BPE (merges by the score of the result).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "text/byte_level.h"
#include "text/pair_map.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

struct PieceSpan {
  TokenId id;
  std::uint32_t bytes;
};

// What both models share: ids, byte pieces, and how unknown pieces are written.
class SentencePieceModel : public Model {
 public:
  SentencePieceModel(const SentencePieceFile& file, const std::string& where)
      : Model(vocabulary_of(file, where)), has_byte_fallback_(file.has_byte_fallback) {
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
      const auto& piece = file.pieces[id];
      types_.push_back(piece.type);
      scores_.push_back(piece.score);
      if (piece.type == PieceType::kUnknown) unknown_ = static_cast<TokenId>(id);
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = vocabulary().find(byte_token(static_cast<std::uint8_t>(byte)));
    }
  }

  void tokenize(std::string_view word, std::vector<WordToken>& tokens) const override {
    thread_local std::vector<PieceSpan> spans;
    spans.clear();
    segment(word, spans);
    bool is_after_unknown = false;
    for (const PieceSpan& span : spans) {
      const bool is_unknown = span.id == unknown_;
      if (is_unknown && has_byte_fallback_) {
        // The last byte has the whole character, the others have none of it.
        for (std::size_t i = 0; i < span.bytes; ++i) {
          tokens.push_back({byte_ids_[static_cast<unsigned char>(word[i])], i + 1 == span.bytes ? span.bytes : 0});
        }
      } else if (is_unknown && is_after_unknown) {
        tokens.back().bytes += span.bytes;
      } else {
        tokens.push_back({span.id, span.bytes});
      }
      is_after_unknown = is_unknown;
      word.remove_prefix(span.bytes);
    }
    if (spans.capacity() > kMostKeptBytes / sizeof(PieceSpan)) spans = std::vector<PieceSpan>();
  }

 protected:
  virtual void segment(std::string_view text, std::vector<PieceSpan>& spans) const = 0;

  [[nodiscard]] PieceType type(TokenId id) const { return types_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] float score(TokenId id) const { return scores_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] TokenId unknown() const { return unknown_; }
  [[nodiscard]] bool is_in_text(TokenId id) const {
    return type(id) == PieceType::kNormal || type(id) == PieceType::kUserDefined || type(id) == PieceType::kUnused;
  }

 private:
  static Vocabulary vocabulary_of(const SentencePieceFile& file, const std::string& where) {
    Vocabulary vocabulary(file.pieces.size());
    for (const auto& piece : file.pieces)
      vocabulary.add(piece.text, static_cast<std::int64_t>(vocabulary.size()), where);
    return vocabulary;
  }

  bool has_byte_fallback_;
  TokenId unknown_ = kNoToken;
  std::vector<PieceType> types_;
  std::vector<float> scores_;
  std::array<TokenId, 256> byte_ids_{};  // with byte fallback
};

class Unigram final : public SentencePieceModel {
 public:
  Unigram(const SentencePieceFile& file, const std::string& where)
      : SentencePieceModel(file, where), ids_(1, kNoToken) {
    float lowest = std::numeric_limits<float>::max();
    for (TokenId id = 0; id < vocabulary().end_id(); ++id) {
      if (type(id) == PieceType::kNormal) lowest = std::min(lowest, score(id));
      if (is_in_text(id)) add(vocabulary().token(id), id);
    }
    constexpr float kUnknownPenalty = 10;
    unknown_score_ = lowest - kUnknownPenalty;
  }

 private:
  void add(std::string_view piece, TokenId id) {
    std::int32_t node = 0;
    for (const char byte : piece) {
      const std::int32_t* child = children_.find(node, static_cast<unsigned char>(byte));
      const std::int32_t next = child != nullptr ? *child : static_cast<std::int32_t>(ids_.size());
      if (child == nullptr) {
        children_.set(node, static_cast<unsigned char>(byte), next);
        ids_.push_back(kNoToken);
      }
      node = next;
    }
    ids_[static_cast<std::size_t>(node)] = id;
  }

  struct Best {
    TokenId id = kNoToken;  // of the last piece of the best way to here; kNoToken: not reached yet
    float score = 0;
    std::uint32_t begin = 0;
  };

  // Keeps sums of scores precise in a long text, at the same places as `sentencepiece`.
  static constexpr float kLargestScore = 100000;
  static void rebase(std::span<Best> ends) {
    const float base = ends.front().score;
    for (Best& end : ends) {
      if (end.id != kNoToken) end.score -= base;
    }
  }

  // User-defined pieces are better than all others.
  [[nodiscard]] float score_in_text(TokenId id, std::size_t bytes) const {
    return type(id) == PieceType::kUserDefined ? static_cast<float>(0.1 * static_cast<double>(bytes - 1)) : score(id);
  }

  void segment(std::string_view text, std::vector<PieceSpan>& spans) const override {
    thread_local std::vector<Best> best;
    best.assign(text.size() + 1, {});
    std::size_t reached = 0;
    const auto offer = [&](std::size_t end, std::size_t begin, TokenId id, float score) {
      Best& target = best[end];
      reached = std::max(reached, end);
      if (target.id == kNoToken || score > target.score) target = {id, score, static_cast<std::uint32_t>(begin)};
    };
    for (std::size_t begin = 0; begin < text.size();) {
      if (std::abs(best[begin].score) > kLargestScore) rebase(std::span(best).subspan(begin, reached + 1 - begin));
      const float before = best[begin].score;
      const std::size_t character = character_bytes(text.substr(begin));
      bool has_character = false;
      std::int32_t node = 0;
      for (std::size_t end = begin; end < text.size();) {
        const std::int32_t* child = children_.find(node, static_cast<unsigned char>(text[end]));
        if (child == nullptr) break;
        node = *child;
        ++end;
        const TokenId id = ids_[static_cast<std::size_t>(node)];
        if (id == kNoToken || type(id) == PieceType::kUnused) continue;
        offer(end, begin, id, score_in_text(id, end - begin) + before);
        has_character |= end - begin == character;
      }
      if (!has_character) offer(begin + character, begin, unknown(), unknown_score_ + before);
      begin += character;
    }
    const std::size_t first = spans.size();
    for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
      spans.push_back({best[end].id, static_cast<std::uint32_t>(end) - best[end].begin});
    }
    std::reverse(spans.begin() + static_cast<std::ptrdiff_t>(first), spans.end());
    if (text.size() > kMostKeptBytes) best = std::vector<Best>();
  }

  PairMap<std::int32_t> children_;  // (node, byte) of a trie
  std::vector<TokenId> ids_;        // [node]
  float unknown_score_;
};

class ScoredBpe final : public SentencePieceModel {
 public:
  ScoredBpe(const SentencePieceFile& file, const std::string& where) : SentencePieceModel(file, where), matcher_(file) {
    for (TokenId id = 0; id < vocabulary().end_id(); ++id) {
      if (is_in_text(id)) pieces_.add(vocabulary().token(id), id);
    }
  }

 private:
  struct Symbol {
    std::uint32_t begin, bytes;  // of the text; 0 bytes: merged into a symbol before it
    std::int32_t previous, next;
    bool is_frozen;
  };
  struct Candidate {
    float score;
    std::int32_t left, right;
    std::uint32_t bytes;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    TokenMap split_at;  // unused piece -> bytes of its left part
  };

  void consider(std::string_view text, std::int32_t left, std::int32_t right, Scratch& scratch) const {
    if (left < 0 || right < 0) return;
    const Symbol& a = scratch.symbols[static_cast<std::size_t>(left)];
    const Symbol& b = scratch.symbols[static_cast<std::size_t>(right)];
    if (a.is_frozen || b.is_frozen) return;
    const std::string_view whole = text.substr(a.begin, a.bytes + b.bytes);
    const TokenId id = pieces_.find(whole);
    if (id == kNoToken) return;
    scratch.heap.push_back({score(id), left, right, a.bytes + b.bytes});
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
    if (type(id) == PieceType::kUnused) scratch.split_at.add(whole, static_cast<TokenId>(a.bytes));
  }

  static bool comes_later(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }

  void segment(std::string_view text, std::vector<PieceSpan>& spans) const override {
    Scratch scratch;
    auto& symbols = scratch.symbols;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t frozen = matcher_.match(text.substr(begin));
      const std::size_t bytes = frozen > 0 ? frozen : character_bytes(text.substr(begin));
      const auto index = static_cast<std::int32_t>(symbols.size());
      begin += bytes;
      symbols.push_back({static_cast<std::uint32_t>(begin - bytes), static_cast<std::uint32_t>(bytes), index - 1,
                         begin == text.size() ? -1 : index + 1, frozen > 0});
    }
    for (std::size_t i = 1; i < symbols.size(); ++i) {
      consider(text, static_cast<std::int32_t>(i) - 1, static_cast<std::int32_t>(i), scratch);
    }
    while (!scratch.heap.empty()) {
      const Candidate best = scratch.heap.front();
      std::pop_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
      scratch.heap.pop_back();
      Symbol& left = symbols[static_cast<std::size_t>(best.left)];
      Symbol& right = symbols[static_cast<std::size_t>(best.right)];
      if (left.bytes == 0 || right.bytes == 0 || left.bytes + right.bytes != best.bytes) continue;
      left.bytes = best.bytes;
      left.next = right.next;
      right.bytes = 0;
      if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.left;
      consider(text, left.previous, best.left, scratch);
      consider(text, best.left, left.next, scratch);
    }
    for (const Symbol& symbol : symbols) {
      if (symbol.bytes > 0) write(text.substr(symbol.begin, symbol.bytes), scratch, spans);
    }
  }

  // Unused pieces only help to merge; their parts are written instead.
  void write(std::string_view piece, const Scratch& scratch, std::vector<PieceSpan>& spans) const {
    const TokenId found = vocabulary().find(piece);
    const TokenId id = found == kNoToken ? unknown() : found;
    const TokenId left = type(id) == PieceType::kUnused ? scratch.split_at.find(piece) : kNoToken;
    if (left == kNoToken) return spans.push_back({id, static_cast<std::uint32_t>(piece.size())});
    write(piece.substr(0, static_cast<std::size_t>(left)), scratch, spans);
    write(piece.substr(static_cast<std::size_t>(left)), scratch, spans);
  }

  TokenMap pieces_;
  PrefixMatcher matcher_;
};

}  // namespace

std::unique_ptr<Model> make_sentencepiece_model(const SentencePieceFile& file, const std::string& where) {
  if (file.model_type == 1) return std::make_unique<Unigram>(file, where);
  return std::make_unique<ScoredBpe>(file, where);
}

}  // namespace sluice::text
