#include "data/token_dataset.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "data/encoded_rows.h"
#include "data/file.h"
#include "data/packing.h"
#include "data/split_files.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

DatasetInfo info_of_tokens(const std::string& name, Split split, std::int64_t vocabulary, const TextOptions& options) {
  DatasetInfo info{.name = name,
                   .split = split,
                   .classes = vocabulary,
                   .kind = SampleKind::kTokens,
                   .context = options.max_length,
                   .has_bytes = false};
  const std::int64_t length = options.pack == Packing::kNone || options.pads_to_max ? options.max_length : -1;
  info.fields = {{.name = kInputs, .sizes = {length}}, {.name = kTargets, .sizes = {length}}};
  if (options.pack != Packing::kNone)
    info.fields.push_back({.name = kMask, .sizes = {length}, .is_optional = options.pack == Packing::kTogether});
  if (options.pack == Packing::kApart) info.fields.push_back({.name = kPositions, .sizes = {length}});
  return info;
}

class TokenWindows final : public Dataset {
 public:
  TokenWindows(DatasetInfo info, std::unique_ptr<TokenSource> source, TokenRange range)
      : info_(std::move(info)), source_(std::move(source)), range_(range) {}

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return (range_.end - range_.begin - 1) / info_.context; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  [[nodiscard]] Fields read_fields(std::span<const std::int64_t> ids) const override {
    const std::int64_t length = info_.context, n = std::ssize(ids);
    const at::Tensor inputs = uninitialized({n, length}, at::kLong), targets = uninitialized({n, length}, at::kLong);
    auto* input = inputs.mutable_data_ptr<std::int64_t>();
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t id : ids) {
      const std::int64_t begin = range_.begin + checked(id) * length;
      source_->copy(begin, length, input);
      std::copy(input + 1, input + length, target);
      source_->copy(begin + length, 1, target + length - 1);
      input += length, target += length;
    }
    return {{kInputs, inputs}, {kTargets, targets}};
  }

 private:
  const DatasetInfo info_;
  const std::unique_ptr<TokenSource> source_;
  const TokenRange range_;
};

class PackedDocuments final : public Dataset {
 public:
  PackedDocuments(DatasetInfo info, std::unique_ptr<TokenSource> source, TokenRange range, const TextOptions& options)
      : info_(std::move(info)),
        source_(std::move(source)),
        is_apart_(options.pack == Packing::kApart),
        least_width_(options.pads_to_max ? options.max_length : 1),
        always_has_mask_(options.always_has_mask) {
    std::vector<Piece> pieces;
    std::vector<std::int32_t> lengths;
    for (std::int64_t document = 0; document < source_->documents(); ++document) {
      const std::int64_t end = std::min(source_->document_begin(document + 1), range.end);
      for (std::int64_t begin = std::max(source_->document_begin(document), range.begin); begin < end;
           begin += lengths.back()) {
        lengths.push_back(static_cast<std::int32_t>(std::min(end - begin, info_.context)));
        pieces.push_back({begin, lengths.back(), begin + lengths.back() < end});
      }
    }
    place(pieces, first_fit(lengths, static_cast<std::int32_t>(info_.context)));
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return std::ssize(row_begins_) - 1; }
  [[nodiscard]] bool is_in_memory() const override { return true; }

  [[nodiscard]] Fields read_fields(std::span<const std::int64_t> ids) const override {
    std::int64_t width = least_width_;
    for (const std::int64_t id : ids) width = std::max(width, tokens_of(checked(id)));
    const bool is_padded = std::ranges::any_of(ids, [&](std::int64_t id) { return tokens_of(id) < width; });
    Fields fields;
    const auto add = [&](const char* name) { fields[name] = uninitialized({std::ssize(ids), width}, at::kLong); };
    add(kInputs), add(kTargets);
    if (is_apart_ || is_padded || always_has_mask_) add(kMask);
    if (is_apart_) add(kPositions);
    for (std::size_t i = 0; i < ids.size(); ++i) write_row(ids[i], static_cast<std::int64_t>(i), width, fields);
    return fields;
  }

 private:
  struct Piece {
    std::int64_t begin = 0;  // in the source
    std::int32_t length = 0;
    bool goes_on = false;  // the document has more tokens
  };

  // Sorts the pieces by their rows.
  void place(const std::vector<Piece>& pieces, const std::vector<std::int64_t>& rows) {
    const std::int64_t count = rows.empty() ? 0 : std::ranges::max(rows) + 1;
    row_begins_.assign(static_cast<std::size_t>(count) + 1, 0);
    for (const std::int64_t row : rows) ++row_begins_[row + 1];
    for (std::int64_t row = 0; row < count; ++row) row_begins_[row + 1] += row_begins_[row];
    std::vector<std::int64_t> next = row_begins_;
    pieces_.resize(pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces_[next[rows[i]]++] = pieces[i];
  }

  [[nodiscard]] std::span<const Piece> pieces_of(std::int64_t row) const {
    return {pieces_.begin() + row_begins_[row], pieces_.begin() + row_begins_[row + 1]};
  }

  [[nodiscard]] std::int64_t tokens_of(std::int64_t row) const {
    std::int64_t tokens = 0;
    for (const Piece& piece : pieces_of(row)) tokens += piece.length;
    return tokens;
  }

  void write_row(std::int64_t row, std::int64_t i, std::int64_t width, const Fields& fields) const {
    const auto row_of = [&](const char* name) -> std::int64_t* {
      const auto field = fields.find(name);
      return field == fields.end() ? nullptr : field->second.mutable_data_ptr<std::int64_t>() + i * width;
    };
    std::int64_t *const inputs = row_of(kInputs), *const targets = row_of(kTargets);
    std::int64_t *const mask = row_of(kMask), *const positions = row_of(kPositions);
    std::int64_t at = 0, document = 0;
    for (const Piece& piece : pieces_of(row)) {
      source_->copy(piece.begin, piece.length, inputs + at);
      std::copy(inputs + at + 1, inputs + at + piece.length, targets + at);
      targets[at + piece.length - 1] = kNoTarget;
      if (piece.goes_on) source_->copy(piece.begin + piece.length, 1, targets + at + piece.length - 1);
      ++document;
      if (mask != nullptr) std::fill_n(mask + at, piece.length, is_apart_ ? document : 1);
      for (std::int64_t t = 0; positions != nullptr && t < piece.length; ++t) positions[at + t] = t;
      at += piece.length;
    }
    for (std::int64_t* const field : {inputs, mask, positions}) {
      if (field != nullptr) std::fill(field + at, field + width, 0);
    }
    std::fill(targets + at, targets + width, kNoTarget);
  }

  const DatasetInfo info_;
  const std::unique_ptr<TokenSource> source_;
  const bool is_apart_;
  const std::int64_t least_width_;
  const bool always_has_mask_;
  std::vector<Piece> pieces_;             // by row, then in order
  std::vector<std::int64_t> row_begins_;  // first piece of each row, and the end
};

// A word of a name stands between characters that are not letters.
bool has_word(const std::string& name, const std::string& word) {
  const auto is_letter = [&](std::size_t i) {
    return i < name.size() && std::isalpha(static_cast<unsigned char>(name[i]));
  };
  for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

// Token files in a folder with one of the words in their names.
std::vector<fs::path> files_named(const fs::path& folder, const std::vector<std::string>& words) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename(), ending = entry.path().extension();
    if (ending != ".tokens" && ending != ".bin") continue;
    if (std::ranges::any_of(words, [&](const std::string& word) { return has_word(name, word); }))
      files.push_back(entry.path());
  }
  if (error) reject_unlistable(folder, error, "correct data.path");
  std::ranges::sort(files);
  return files;
}

std::vector<fs::path> train_files(const fs::path& folder) { return files_named(folder, {"train"}); }

// As with tables (split_files.h), samples for validation are a test set if there is no other.
std::vector<fs::path> files_of_split(const fs::path& folder, Split split) {
  const bool is_train = split == Split::kTrain;
  std::vector<fs::path> files = is_train ? train_files(folder) : files_named(folder, {"test"});
  if (files.empty() && !is_train) files = files_named(folder, {"val", "valid", "validation", "dev"});
  if (files.empty()) {
    throw DataError(folder.string(), ": has no token file of the ", name_of(split), " split: *.tokens or *.bin with ",
                    is_train ? "train" : "test, val, valid, validation or dev",
                    " in its name; write some with `sluice tokenize`, or correct ", "data.path");
  }
  return files;
}

}  // namespace

std::unique_ptr<Dataset> make_token_dataset(const std::string& name, std::unique_ptr<TokenSource> source,
                                            TokenRange range, std::int64_t vocabulary, const TextOptions& options,
                                            Split split) {
  DatasetInfo info = info_of_tokens(name, split, vocabulary, options);
  const std::int64_t tokens = range.end - range.begin;
  const std::int64_t needed = options.pack == Packing::kNone ? options.max_length + 1 : 1;
  if (tokens < needed) {
    throw DataError("data set ", name, ": the ", name_of(split), " split has ", counted(tokens, "token"),
                    ", but needs ", needed, "; set a smaller data.max_length or take more text");
  }
  if (options.pack == Packing::kNone) return std::make_unique<TokenWindows>(std::move(info), std::move(source), range);
  return std::make_unique<PackedDocuments>(std::move(info), std::move(source), range, options);
}

std::unique_ptr<Dataset> open_tokens(const fs::path& path, const TextOptions& options, Split split) {
  std::int64_t vocabulary = options.vocabulary;
  if (vocabulary == 0 && !options.tokenizer.empty()) vocabulary = text::open_tokenizer(options.tokenizer)->end_id();
  const bool is_folder = fs::is_directory(path);
  const std::vector<fs::path> files = is_folder ? files_of_split(path, split) : std::vector{path};
  TokenFileOptions how{.vocabulary = vocabulary};
  if (split == Split::kTrain) how.tokenizer = options.tokenizer;
  if (is_folder && split == Split::kTest) {
    if (const auto others = train_files(path); !others.empty()) how.of_other_split = others.front();
  }
  OpenedTokens opened = open_token_files(files, how);
  if (opened.vocabulary == 0) {
    throw ConfigError(path.string(), " does not say how many tokens its vocabulary has; set data.tokenizer to the ",
                      "tokenizer that wrote it");
  }
  TokenRange range{0, opened.source->tokens()};
  if (!is_folder) {
    const std::int64_t border = range.end - range.end / 10;
    split == Split::kTrain ? range.end = border : range.begin = border;
  }
  return make_token_dataset("tokens", std::move(opened.source), range, opened.vocabulary, options, split);
}

std::unique_ptr<Dataset> open_tokenized_text(const std::string& name, const fs::path& path, const TextOptions& options,
                                             Split split) {
  check_text_options(options, name);
  const auto tokenizer = text::open_tokenizer(options.tokenizer);
  const std::vector<std::string> endings = name == "csv"     ? std::vector<std::string>{".csv", ".tsv"}
                                           : name == "jsonl" ? std::vector<std::string>{".jsonl", ".ndjson"}
                                                             : std::vector<std::string>{".txt"};
  const bool is_folder = fs::is_directory(path);
  const TextPart part = is_folder                ? TextPart::kAll
                        : split == Split::kTrain ? TextPart::kFirstNineTenths
                                                 : TextPart::kLastTenth;
  auto source = tokenize_documents(is_folder ? table_file(path, split, endings) : path, *tokenizer, options, part);
  const TokenRange range{0, source->tokens()};
  return make_token_dataset(name, std::move(source), range, tokenizer->end_id(), options, split);
}

}  // namespace sluice::data
