#include "text/models.h"

#include <algorithm>
#include <array>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "text/byte_level.h"
#include "text/pair_map.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

struct Merge {
  std::uint32_t rank;
  TokenId result;
};

struct Symbol {
  TokenId id;
  std::uint32_t bytes;  // 0: joined to a symbol before it
  std::int32_t previous, next;
};

struct Candidate {
  std::uint32_t rank;
  std::int32_t at;  // left symbol
  TokenId result;
};
// For a heap with the lowest rank on top, among equal ones the leftmost.
bool comes_later(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; }

struct BpeScratch {
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string character;
};

class Bpe final : public Model {
 public:
  Bpe(Vocabulary vocabulary, const Merges& merges, BpeOptions options, BpeInput input, const std::string& where)
      : Model(std::move(vocabulary)), options_(std::move(options)), input_(input), merges_(merges.size()) {
    if (options_.unknown) {
      unknown_ = this->vocabulary().find(*options_.unknown);
      if (unknown_ == kNoToken && input_ == BpeInput::kCharacters) {
        throw DataError(where, ": the unknown token \"", printable(*options_.unknown), "\" is not in the vocabulary");
      }
    }
    add_merges(merges, where);
    for (unsigned byte = 0; byte < 256; ++byte) {
      fallback_[byte] = this->vocabulary().find(byte_token(static_cast<std::uint8_t>(byte)));
    }
    if (input_ == BpeInput::kRawBytes) read_raw_tokens();
  }

  void tokenize(std::string_view word, std::vector<WordToken>& tokens) const override {
    if (options_.ignores_merges) {
      const TokenId id = input_ == BpeInput::kRawBytes ? raw_tokens_.find(word) : vocabulary().find(word);
      if (id != kNoToken) {
        tokens.push_back({id, static_cast<std::uint32_t>(word.size())});
        return;
      }
    }
    thread_local BpeScratch scratch;
    scratch.symbols.clear();
    input_ == BpeInput::kRawBytes ? split_bytes(word, scratch) : split_characters(word, scratch);
    merge(scratch);
    for (const Symbol& symbol : scratch.symbols) {
      if (symbol.bytes > 0) tokens.push_back({symbol.id, symbol.bytes});
    }
    if (word.size() > kMostKeptBytes) scratch = {};
  }

 private:
  void add_merges(const Merges& merges, const std::string& where) {
    std::uint32_t rank = 0;
    for (const auto& [left, right] : merges) {
      const auto id_of = [&](std::string_view token) {
        const TokenId id = vocabulary().find(token);
        if (id != kNoToken) return id;
        throw DataError(where, ": merge ", rank, " (\"", printable(left), "\" and \"", printable(right),
                        "\") needs the token \"", printable(token), "\", which is not in the vocabulary");
      };
      const TokenId left_id = id_of(left);
      const TokenId right_id = id_of(right);
      const std::string_view tail =
          std::string_view(right).substr(std::min(right.size(), options_.continuation.size()));
      merges_.set(left_id, right_id, {rank, id_of(left + std::string(tail))});
      ++rank;
    }
  }

  void read_raw_tokens() {
    for (TokenId id = 0; id < vocabulary().end_id(); ++id) {
      if (!vocabulary().has(id)) continue;
      const auto bytes = bytes_of_characters(vocabulary().token(id));
      if (!bytes) continue;
      if (bytes->size() == 1) of_byte_[static_cast<unsigned char>(bytes->front())] = id;
      raw_tokens_.add(*bytes, id);
    }
  }

  static void add(TokenId id, std::size_t bytes, BpeScratch& scratch) {
    const auto index = static_cast<std::int32_t>(scratch.symbols.size());
    if (index > 0) scratch.symbols.back().next = index;
    scratch.symbols.push_back({id, static_cast<std::uint32_t>(bytes), index - 1, -1});
  }

  void split_bytes(std::string_view word, BpeScratch& scratch) const {
    for (const char byte : word) add(of_byte_[static_cast<unsigned char>(byte)], 1, scratch);
  }

  // The character with the prefix and suffix of its place in the word.
  std::string_view with_affixes(std::string_view word, std::string_view character, std::string& result) const {
    if (options_.continuation.empty() && options_.word_end.empty()) return character;
    result = character.data() == word.data() ? "" : options_.continuation;
    result += character;
    if (character.data() + character.size() == word.data() + word.size()) result += options_.word_end;
    return result;
  }

  // As in `tokenizers`, bytes of the fallback come before a pending unknown token.
  void split_characters(std::string_view word, BpeScratch& scratch) const {
    std::size_t pending = 0;  // bytes of the unknown token to be written
    const auto flush = [&] {
      if (pending > 0) add(unknown_, pending, scratch);
      pending = 0;
    };
    for (std::size_t at = 0, bytes = 0; at < word.size(); at += bytes) {
      bytes = character_bytes(word.substr(at));
      const std::string_view character = with_affixes(word, word.substr(at, bytes), scratch.character);
      if (const TokenId id = vocabulary().find(character); id != kNoToken) {
        flush();
        add(id, bytes, scratch);
      } else if (options_.falls_back_to_bytes && has_bytes_of(character)) {
        for (const char byte : character) add(fallback_[static_cast<unsigned char>(byte)], 1, scratch);
      } else if (unknown_ != kNoToken) {
        if (!options_.fuses_unknown) flush();
        pending += bytes;
      }
    }
    flush();
  }

  [[nodiscard]] bool has_bytes_of(std::string_view character) const {
    return std::all_of(character.begin(), character.end(),
                       [&](char byte) { return fallback_[static_cast<unsigned char>(byte)] != kNoToken; });
  }

  void consider(std::int32_t at, BpeScratch& scratch) const {
    const Symbol& left = scratch.symbols[static_cast<std::size_t>(at)];
    if (left.next < 0) return;
    const Merge* merge = merges_.find(left.id, scratch.symbols[static_cast<std::size_t>(left.next)].id);
    if (merge == nullptr) return;
    scratch.heap.push_back({merge->rank, at, merge->result});
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), comes_later);
  }

  void merge(BpeScratch& scratch) const {
    auto& [symbols, heap, character] = scratch;
    heap.clear();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<std::int32_t>(i), scratch);
    while (!heap.empty()) {
      const Candidate best = heap.front();
      std::pop_heap(heap.begin(), heap.end(), comes_later);
      heap.pop_back();
      Symbol& left = symbols[static_cast<std::size_t>(best.at)];
      if (left.bytes == 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<std::size_t>(left.next)];
      const Merge* merge = merges_.find(left.id, right.id);
      if (merge == nullptr || merge->result != best.result) continue;  // one of both has changed since
      left.id = best.result;
      left.bytes += right.bytes;
      left.next = right.next;
      right.bytes = 0;
      if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = best.at;
      if (left.previous >= 0) consider(left.previous, scratch);
      consider(best.at, scratch);
    }
  }

  BpeOptions options_;
  BpeInput input_;
  PairMap<Merge> merges_;  // by the ids of both parts
  TokenId unknown_ = kNoToken;
  std::array<TokenId, 256> fallback_{};  // tokens <0x00> to <0xFF>
  std::array<TokenId, 256> of_byte_{};   // kRawBytes
  TokenMap raw_tokens_;                  // kRawBytes
};

}  // namespace

std::unique_ptr<Model> make_bpe(Vocabulary vocabulary, const Merges& merges, const BpeOptions& options, BpeInput input,
                                const std::string& where) {
  return std::make_unique<Bpe>(std::move(vocabulary), merges, options, input, where);
}

}  // namespace sluice::text
