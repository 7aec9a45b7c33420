// Opens tokenizer files, and reads vocab.txt.
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/text.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

namespace sluice::text {
namespace {

constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{1} << 30;

std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error)
    throw DataError(file.string(), ": cannot be read: ", error.message(), "; give the path of a tokenizer file");
  if (size > kMostFileBytes)
    throw DataError(file.string(), ": has ", human_bytes(size), ", too much for a tokenizer file");
  std::ifstream stream(file, std::ios::binary);
  if (!stream && is_file_limit(errno)) too_many_open_files("cannot open " + file.string());
  std::string content(std::istreambuf_iterator<char>(stream), {});
  if (!stream || content.size() != size) throw DataError(file.string(), ": cannot be read to its end");
  return content;
}

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
  std::int64_t line = 0;
  for (std::size_t at = 0; at < content.size(); ++line) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    std::string_view token = content.substr(at, end - at);
    if (token.ends_with('\r')) token.remove_suffix(1);
    vocabulary.add(token, line, where);
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

std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& file) {
  const std::string where = file.string();
  const std::string kind = file.extension().string();
  if (kind != ".json" && kind != ".txt" && kind != ".model") {
    throw ConfigError(where, ": expected a tokenizer.json, a vocab.txt or a SentencePiece .model file");
  }
  const std::string content = read_file(file);
  return std::make_shared<const Tokenizer>(kind == ".json"  ? parse_tokenizer_json(content, where)
                                           : kind == ".txt" ? parse_vocab_txt(content, where)
                                                            : parse_sentencepiece(content, where));
}

}  // namespace sluice::text
