// Reads BERT's vocab.txt.
#include <algorithm>

#include "core/error.h"
#include "text/models.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace sluice::text {
namespace {

// Cased vocabularies have tokens with capital letters outside their special tokens.
bool is_cased(const Vocabulary& vocabulary) {
  for (TokenId id = 0; id < vocabulary.end_id(); ++id) {
    const std::string& token = vocabulary.token(id);
    if (!token.starts_with('[') &&
        std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
      return true;
    }
  }
  return false;
}

}  // namespace

TokenizerParts parse_vocab_txt(std::string_view content, const std::string& where) {
  Vocabulary vocabulary;
  std::string repaired;
  std::int64_t line = 0;
  for (std::size_t at = 0; at < content.size(); ++line) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view token = content.substr(at, end - at);
    if (repair_utf8(token, repaired) != token) throw DataError(where, ": line ", line + 1, " is not valid UTF-8");
    vocabulary.add(token.substr(0, begin_of_spaces(token, token.size())), line, where);
    at = end + 1;
  }
  std::vector<AddedToken> added;
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    const TokenId id = vocabulary.find(name);
    if (id == kNoToken) throw DataError(where, ": has no line \"", name, "\"; is it a vocab.txt of BERT?");
    added.push_back({.id = id, .content = name, .is_normalized = false, .is_special = true});
  }
  std::vector<NormalizerStep> steps = {PointStep::kClean, PointStep::kIsolateCjk};
  if (!is_cased(vocabulary))
    steps.insert(steps.end(), {PointStep::kNfd, PointStep::kStripNonspacing, PointStep::kLower});
  TokenizerParts parts;
  parts.normalizer = Normalizer(std::move(steps));
  parts.pre_tokenizer = {BertSplit{}};
  parts.added_tokens = AddedTokens(added, vocabulary, parts.normalizer, where);
  const std::vector<TokenId> cls = {vocabulary.find("[CLS]")};
  const std::vector<TokenId> sep = {vocabulary.find("[SEP]")};
  parts.post_processor.single = {{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}};
  parts.post_processor.pair = {{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}, {1, {}, 1}, {-1, sep, 1}};
  parts.decoder = {WordPieceDecode{"##", true}};
  parts.model = make_wordpiece(std::move(vocabulary), {}, where);
  return parts;
}

}  // namespace sluice::text
