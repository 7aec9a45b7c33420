#include "data/token_source.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/encoded_rows.h"
#include "data/in_order.h"
#include "text/document_encoder.h"
#include "text/token_file.h"
#include "text/utf8.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kJobBytes = std::uint64_t{1} << 18;
constexpr std::uint64_t kQuicklyRead = std::uint64_t{256}
                                       << 20;  // bytes; larger files are not compared with their checksums

class TokenFiles final : public TokenSource {
 public:
  explicit TokenFiles(std::vector<text::TokenFile> files) : files_(std::move(files)) {
    for (const text::TokenFile& file : files_) {
      tokens_.push_back(tokens_.back() + static_cast<std::int64_t>(file.tokens()));
      documents_.push_back(documents_.back() + static_cast<std::int64_t>(file.documents()));
    }
  }

  [[nodiscard]] std::int64_t tokens() const override { return tokens_.back(); }
  [[nodiscard]] std::int64_t documents() const override { return documents_.back(); }

  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override {
    if (document == documents()) return tokens();
    const std::size_t file = holder_of(documents_, document);
    const auto own = static_cast<std::uint64_t>(document - documents_[file]);
    return tokens_[file] + static_cast<std::int64_t>(files_[file].document_begin(own));
  }

  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const override {
    for (std::size_t file = holder_of(tokens_, begin); count > 0; ++file) {
      const std::int64_t taken = std::min(count, tokens_[file + 1] - begin);
      files_[file].copy(static_cast<std::uint64_t>(begin - tokens_[file]), static_cast<std::uint64_t>(taken), out);
      begin += taken, count -= taken, out += taken;
    }
  }

 private:
  // The file that holds number `at`. ends: 0, then the end of each file.
  static std::size_t holder_of(const std::vector<std::int64_t>& ends, std::int64_t at) {
    return static_cast<std::size_t>(std::ranges::upper_bound(ends, at) - ends.begin()) - 1;
  }

  std::vector<text::TokenFile> files_;
  std::vector<std::int64_t> tokens_{0}, documents_{0};
};

class TokenizedText final : public TokenSource {
 public:
  explicit TokenizedText(std::int64_t vocabulary) : ids_(vocabulary) {}

  void append(std::span<const text::TokenId> ids) {
    ids_.append(ids);
    begins_.push_back(ids_.size());
  }

  [[nodiscard]] std::int64_t tokens() const override { return ids_.size(); }
  [[nodiscard]] std::int64_t documents() const override { return std::ssize(begins_) - 1; }
  [[nodiscard]] std::int64_t document_begin(std::int64_t document) const override { return begins_[document]; }
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const override { ids_.copy(begin, count, out); }

 private:
  TokenArray ids_;
  std::vector<std::int64_t> begins_{0};
};

// Records of the wanted part of a file.
class PartReader {
 public:
  PartReader(const std::filesystem::path& file, const text::DocumentText& rule, TextPart part)
      : reader_(file, rule.kind()), part_(part) {
    border_ = reader_.bytes() - reader_.bytes() / 10;
  }

  text::RecordReader& reader() { return reader_; }

  bool next(std::string& record) {
    while (true) {
      const std::uint64_t begin = reader_.offset();
      record.clear();
      if (part_ == TextPart::kFirstNineTenths && begin >= border_) return false;
      if (!reader_.next(record)) return false;
      if (part_ == TextPart::kAll) return true;
      if (reader_.records() == 1 && reader_.offset() == reader_.bytes()) return cut(record);
      if (part_ == TextPart::kFirstNineTenths || begin >= border_) return true;
    }
  }

 private:
  // The file is one document.
  bool cut(std::string& record) const {
    std::size_t at = static_cast<std::size_t>(border_);
    while (at < record.size() && !text::begins_character(record[at])) ++at;
    part_ == TextPart::kFirstNineTenths ? record.resize(std::min(at, record.size()))
                                        : static_cast<void>(record.erase(0, at));
    return !record.empty();
  }

  text::RecordReader reader_;
  const TextPart part_;
  std::uint64_t border_ = 0;  // in bytes
};

// A data set has special tokens or ends of documents, not both.
text::TokenId end_of_documents(const text::Tokenizer& tokenizer, bool adds_special_tokens) {
  const std::string end = adds_special_tokens ? "" : text::end_of_text_token(tokenizer);
  return end.empty() ? text::kNoToken : tokenizer.find(end);
}

}  // namespace

OpenedTokens open_token_files(const std::vector<std::filesystem::path>& files, const TokenFileOptions& options) {
  check(!files.empty(), "at least one token file");
  const auto vocabulary = static_cast<std::uint64_t>(options.vocabulary);
  std::vector<text::TokenFile> opened;
  std::uint64_t known = 0;
  std::filesystem::path first = options.of_other_split;
  std::string digest = first.empty() ? std::string() : std::string(text::TokenFile(first).layout().tokenizer);
  for (const std::filesystem::path& file : files) {
    const text::TokenFile& one = opened.emplace_back(file, vocabulary);
    if (std::error_code ignored; std::filesystem::file_size(file, ignored) <= kQuicklyRead) one.verify();
    known = std::max(known, one.layout().vocabulary);
    const std::string_view own = one.layout().tokenizer;
    if (digest.empty()) digest = own, first = file;
    if (!own.empty() && own != digest) {
      throw DataError(file.string(), " was written with another tokenizer than ", first.string(),
                      "; write both with one: sluice tokenize");
    }
  }
  // A tokenizer saved again may have other bytes, so this is no error.
  if (!options.tokenizer.empty() && !opened.front().may_be_of(options.tokenizer)) {
    log_warning(files.front().string(),
                " was written with another file than data.tokenizer = ", options.tokenizer.string(),
                "; if this is another tokenizer, its tokens mean something else");
  }
  return {std::make_unique<TokenFiles>(std::move(opened)),
          static_cast<std::int64_t>(vocabulary > 0 ? vocabulary : known)};
}

std::unique_ptr<TokenSource> tokenize_documents(const std::filesystem::path& file, const text::Tokenizer& tokenizer,
                                                const TextOptions& options, TextPart part) {
  auto tokens = std::make_unique<TokenizedText>(tokenizer.end_id());
  text::DocumentText rule(file, options.documents, options.text, "data.text_column");
  PartReader part_reader(file, rule, part);
  text::RecordReader& reader = part_reader.reader();
  if (std::string head; rule.has_head() && reader.next(head)) rule.read_head(head);
  const text::DocumentEncoder encoder(tokenizer, end_of_documents(tokenizer, options.adds_special_tokens),
                                      options.adds_special_tokens);
  std::uint64_t empty = 0;
  const auto next = [&]() -> Job {
    std::vector<std::string> records;
    std::uint64_t bytes = 0, first = reader.records();
    for (std::string record; bytes < kJobBytes && part_reader.next(record); bytes += records.back().size() + 1) {
      if (records.empty()) first = reader.records() - 1;
      records.push_back(std::move(record));
    }
    if (records.empty()) return nullptr;
    return [&, first, records = std::move(records)]() -> Finish {
      return [&tokens, &empty, documents = encoder.encode(rule, {records.begin(), records.end()}, first)] {
        std::uint64_t begin = 0;
        for (const std::uint64_t length : documents.lengths) {
          tokens->append(std::span(documents.ids).subspan(begin, length));
          begin += length;
        }
        empty += documents.empty;
      };
    };
  };
  in_order(options.threads, next, [&] {
    const double share = static_cast<double>(reader.offset()) / static_cast<double>(reader.bytes());
    return concat("Tokenizing ", file.string(), ": ", percent(share));
  });
  if (empty > 0)
    log_info(file.string(), ": ", counted(static_cast<std::int64_t>(empty), "document"), " without tokens left out");
  return tokens;
}

}  // namespace sluice::data
