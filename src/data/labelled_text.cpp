#include "data/labelled_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/encoded_rows.h"
#include "data/in_order.h"
#include "data/split_files.h"
#include "data/table.h"
#include "text/utf8.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 18;
std::string listed(std::vector<std::string> classes) {
  constexpr std::size_t kMost = 20;
  if (classes.size() > kMost) classes.resize(kMost), classes.emplace_back("...");
  return join(classes, ", ");
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

void sort_classes(std::vector<std::string>& names) {
  const auto number = [](const std::string& name) { return parse_number<std::int64_t>(name); };
  const bool are_numbers =
      std::ranges::all_of(names, [&](const std::string& name) { return number(name).has_value(); });
  are_numbers ? std::ranges::sort(names, {}, number) : std::ranges::sort(names);
}

// If all names are class numbers, those of all `classes`; else the names.
std::vector<std::string> numbered_if_numbers(const std::vector<std::string>& names, std::int64_t classes) {
  std::vector<std::string> numbers;
  for (std::int64_t i = 0; i < classes; ++i) numbers.push_back(std::to_string(i));
  const auto is_number = [&](const std::string& name) { return std::ranges::find(numbers, name) != numbers.end(); };
  return std::ranges::all_of(names, is_number) ? numbers : names;
}

// Names as they come, with their numbers.
class ClassNumbers {
 public:
  std::int64_t of(const std::string& name) { return numbers_.try_emplace(name, std::ssize(numbers_)).first->second; }
  [[nodiscard]] std::vector<std::string> sorted() const {
    std::vector<std::string> names;
    for (const auto& [name, number] : numbers_) names.push_back(name);
    sort_classes(names);
    return names;
  }
  // [number]: the place of the name in `names`, which has them all.
  [[nodiscard]] std::vector<std::int64_t> places_in(const std::vector<std::string>& names) const {
    std::vector<std::int64_t> places(numbers_.size());
    for (const auto& [name, number] : numbers_) places[number] = std::ranges::find(names, name) - names.begin();
    return places;
  }

 private:
  std::map<std::string, std::int64_t> numbers_;
};

std::vector<std::string> classes_in(const std::filesystem::path& file, const std::string& label, bool of_words) {
  Table table(file, {label});
  ClassNumbers numbers;
  for (std::vector<Table::Row> rows; table.next(rows, kPieceBytes); rows.clear()) {
    for (const Table::Row& row : rows) {
      const auto names = of_words ? table.lists(row).front() : table.cells(row);
      for (const std::string& name : names) static_cast<void>(numbers.of(name));
    }
  }
  return numbers.sorted();
}

// For each token, the word that it is the first token of; -1 if none.
std::vector<std::int64_t> words_of_tokens(const text::Encoding& encoding, const std::vector<std::string>& words) {
  std::vector<std::int64_t> first(encoding.ids.size(), -1);
  std::size_t end = 0, word_end = 0, token = 0;
  for (std::size_t word = 0; word < words.size(); ++word) {
    const std::size_t begin = end;
    word_end = begin + text::count_points(words[word]);
    end = word_end + 1;  // a space
    const auto ends_before = [&] { return encoding.sequence_ids[token] < 0 || encoding.offsets[token].end <= begin; };
    while (token < first.size() && ends_before()) ++token;
    if (token < first.size() && encoding.offsets[token].begin < word_end)
      first[token++] = static_cast<std::int64_t>(word);
  }
  return first;
}

class LabelledText final : public Dataset {
 public:
  LabelledText(const std::string& name, const std::filesystem::path& file, const std::filesystem::path& train_file,
               const TextOptions& options, Split split)
      : tokenizer_(text::open_tokenizer(options.tokenizer)),
        options_(options),
        pad_id_(padding_id(*tokenizer_)),
        rows_(tokenizer_->end_id()) {
    info_.name = name;
    info_.split = split;
    if (split == Split::kTest && has_classes())
      info_.class_names = in_order_of_model(classes_in(train_file, options.label, has_words()));
    read_all(file);
    info_.classes = tokenizer_->end_id();
    info_.kind = SampleKind::kTokens;
    info_.context = options.max_length;
    info_.fields = rows_.fields();
    info_.fields.push_back({.name = kTargets, .type = has_classes() ? at::kLong : at::kDouble});
    if (has_words()) info_.fields.back().sizes = {-1};
    info_.has_bytes = false;
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return rows_.size(); }
  [[nodiscard]] bool is_in_memory() const override { return true; }
  [[nodiscard]] std::vector<int> lengths() const override { return rows_.lengths(); }

  [[nodiscard]] Fields read_fields(std::span<const std::int64_t> ids) const override {
    for (const std::int64_t id : ids) static_cast<void>(checked(id));
    Fields fields = rows_.stack(ids, options_, pad_id_);
    const std::int64_t n = std::ssize(ids);
    if (has_words()) return with_targets_of_words(std::move(fields), ids);
    fields[kTargets] = has_classes() ? column(n, [&](std::int64_t i) { return classes_[ids[i]]; })
                                     : number_column(n, [&](std::int64_t i) { return numbers_[ids[i]]; });
    return fields;
  }

 private:
  struct Piece {
    std::vector<text::Encoding> encodings;
    std::vector<std::vector<std::string>> labels;  // [row]: of the sample, or of each word
    std::vector<std::vector<std::int64_t>> words;  // [row][token]: that it is the first token of
    std::int64_t repaired = 0;
  };

  [[nodiscard]] bool has_classes() const { return options_.label_kind != LabelKind::kNumber; }
  [[nodiscard]] bool has_words() const { return options_.label_kind == LabelKind::kClassOfEachWord; }

  [[nodiscard]] Fields with_targets_of_words(Fields fields, std::span<const std::int64_t> ids) const {
    const at::Tensor targets = at::full_like(fields.at(kInputs), kNoTarget);
    const std::int64_t width = targets.size(1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::copy_n(classes_.begin() + rows_.begin(ids[i]), rows_.length(ids[i]),
                  targets.mutable_data_ptr<std::int64_t>() + static_cast<std::int64_t>(i) * width);
    }
    fields[kTargets] = targets;
    return fields;
  }

  void read_all(const std::filesystem::path& file) {
    std::vector<std::string> columns{options_.label, options_.text};
    if (!options_.text2.empty()) columns.push_back(options_.text2);
    Table table(file, columns);
    ClassNumbers numbers;
    for (const std::string& name : info_.class_names) static_cast<void>(numbers.of(name));
    const auto next = [&]() -> Job {
      std::vector<Table::Row> rows;
      if (!table.next(rows, kPieceBytes)) return nullptr;
      return [&, rows = std::move(rows)]() -> Finish {
        return [&, rows, piece = encode(table, rows)] { take(table, rows, piece, numbers); };
      };
    };
    in_order(options_.threads, next,
             [&] { return concat("Tokenizing ", file.string(), ": ", percent(table.share_read())); });
    if (size() == 0) throw DataError(file.string(), ": has no texts; check data.path");
    if (repaired_ > 0)
      log_warning(file.string(), ": ", counted(repaired_, "row"), " with invalid UTF-8, which was replaced by U+FFFD");
    if (info_.split == Split::kTest || !has_classes()) return;
    info_.class_names = in_order_of_model(numbers.sorted());
    const std::vector<std::int64_t> places = numbers.places_in(info_.class_names);
    for (std::int64_t& number : classes_) number = number == kNoTarget ? kNoTarget : places[number];
  }

  // The model's classes if they include all labels of the data; else the data's.
  [[nodiscard]] std::vector<std::string> in_order_of_model(const std::vector<std::string>& names) const {
    const std::vector<std::string>& of_model = options_.class_names;
    if (of_model.empty()) return names;
    const auto unknown = std::ranges::find_if_not(
        names, [&](const std::string& name) { return std::ranges::find(of_model, name) != of_model.end(); });
    if (unknown == names.end()) return of_model;
    if (of_model.front() == "LABEL_0") return numbered_if_numbers(names, std::ssize(of_model));
    if (options_.must_know_labels) {
      throw DataError("data set ", info_.name, ": label \"", printable(*unknown),
                      "\" is not one of the model's: ", listed(of_model), did_you_mean(*unknown, of_model),
                      "; correct the label, or evaluate with the labels that the model was trained with");
    }
    if (info_.split == Split::kTrain) {
      log_warning("label ", printable(*unknown), " of the data is not a class of the model (", listed(of_model),
                  "), so classes are numbered by the data; to use a trained head, rename the labels as there");
    }
    return names;
  }

  [[nodiscard]] Piece encode(const Table& table, const std::vector<Table::Row>& rows) const {
    Piece piece;
    for (const Table::Row& row : rows) has_words() ? encode_words(table, row, piece) : encode_text(table, row, piece);
    return piece;
  }

  void encode_text(const Table& table, const Table::Row& row, Piece& piece) const {
    std::vector<std::string> cells = table.cells(row);
    std::optional<std::string_view> second;
    std::string repaired[2];
    const std::string_view first = text::repair_utf8(cells[1], repaired[0]);
    if (cells.size() > 2) second = text::repair_utf8(cells[2], repaired[1]);
    piece.repaired += repaired[0].empty() && repaired[1].empty() ? 0 : 1;
    add(table, row, first, second, piece);
    piece.labels.push_back({std::move(cells[0])});
  }

  void encode_words(const Table& table, const Table::Row& row, Piece& piece) const {
    std::vector<std::vector<std::string>> lists = table.lists(row);
    const std::vector<std::string>&labels = lists[0], &words = lists[1];
    if (labels.size() != words.size()) {
      table.reject(row, concat("has ", counted(std::ssize(words), "word"), ", but ",
                               counted(std::ssize(labels), "label"), "; give each word one"));
    }
    add(table, row, join(words, " "), {}, piece);
    piece.words.push_back(words_of_tokens(piece.encodings.back(), words));
    piece.labels.push_back(std::move(lists[0]));
  }

  void add(const Table& table, const Table::Row& row, std::string_view text, std::optional<std::string_view> second,
           Piece& piece) const {
    const text::Truncation cut{.max_length = static_cast<std::size_t>(options_.max_length)};
    piece.encodings.push_back(tokenizer_->encode_windows(text, second, /*adds_special_tokens=*/true, cut).front());
    if (piece.encodings.back().ids.empty()) table.reject(row, "has no tokens; fill in or remove its text");
  }

  void take(const Table& table, const std::vector<Table::Row>& rows, const Piece& piece, ClassNumbers& numbers) {
    repaired_ += piece.repaired;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows_.append(piece.encodings[i]);
      const std::vector<std::string>& labels = piece.labels[i];
      if (has_words()) {
        std::vector<std::int64_t> classes;
        for (const std::string& label : labels) classes.push_back(class_of(table, rows[i], label, numbers));
        for (const std::int64_t word : piece.words[i]) classes_.push_back(word < 0 ? kNoTarget : classes[word]);
      } else if (has_classes()) {
        classes_.push_back(class_of(table, rows[i], labels.front(), numbers));
      } else {
        numbers_.push_back(number_of(table, rows[i], labels.front()));
      }
    }
  }

  [[nodiscard]] static double number_of(const Table& table, const Table::Row& row, const std::string& label) {
    const auto number = parse_number<double>(label);
    if (!number || !std::isfinite(*number))
      table.reject(row, concat("has the label \"", label, "\", which is not a number; correct it"));
    return *number;
  }

  [[nodiscard]] std::int64_t class_of(const Table& table, const Table::Row& row, const std::string& label,
                                      ClassNumbers& numbers) const {
    if (label.empty()) table.reject(row, "has an empty label; fill it in or remove the row");
    const std::int64_t number = numbers.of(label);
    if (info_.split == Split::kTest && number >= std::ssize(info_.class_names)) reject_class(table, row, label);
    return number;
  }

  [[noreturn]] void reject_class(const Table& table, const Table::Row& row, const std::string& label) const {
    const std::vector<std::string>& names = info_.class_names;
    const bool is_decimal = !has_words() && label.find('.') != std::string::npos && parse_number<double>(label);
    table.reject(row, concat("has the label \"", label, "\", which is not one of the classes: ", listed(names),
                             did_you_mean(label, names), "; correct the label",
                             is_decimal ? ", or set model.classes = 1 to predict numbers" : ""));
  }

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const TextOptions options_;
  const std::int64_t pad_id_;
  EncodedRows rows_;
  std::vector<std::int64_t> classes_;  // of rows, or of all tokens
  std::vector<double> numbers_;
  std::int64_t repaired_ = 0;
  DatasetInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> open_labelled_text(const std::string& name, const std::filesystem::path& folder,
                                            const TextOptions& options, Split split) {
  check_text_options(options, name);
  if (options.label_kind == LabelKind::kClassOfEachWord && name != "jsonl")
    throw ConfigError("model.task = \"tokens\" needs a list of words and a list of labels in each row, which ", name,
                      " cannot have; use data.name = \"jsonl\"");
  const std::vector<std::string> endings =
      name == "csv" ? std::vector<std::string>{".csv", ".tsv"} : std::vector<std::string>{".jsonl", ".ndjson"};
  const auto file_of = [&](Split of) { return table_file(folder, of, endings); };
  return std::make_unique<LabelledText>(name, file_of(split), file_of(Split::kTrain), options, split);
}

}  // namespace sluice::data
