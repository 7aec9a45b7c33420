#include "data/squad_dataset.h"

#include <algorithm>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "data/encoded_rows.h"
#include "data/in_order.h"
#include "data/split_files.h"
#include "text/unicode.h"

namespace sluice::data {
namespace {

// First and last token of an answer, as Hugging Face's example finds them.
struct AnswerTokens {
  std::int32_t first = 0, last = 0;
};

std::size_t first_of_context(const text::Encoding& window) {
  return static_cast<std::size_t>(std::ranges::find(window.sequence_ids, 1) - window.sequence_ids.begin());
}

std::size_t context_tokens(const text::Encoding& window) {
  return static_cast<std::size_t>(std::ranges::count(window.sequence_ids, 1));
}

AnswerTokens answer_in(const text::Encoding& window, const Question& question) {
  if (question.answers.empty()) return {};
  if (question.begin < 0) return {kNoTarget, kNoTarget};
  const std::size_t begin = first_of_context(window), count = context_tokens(window);
  const std::span offsets(window.offsets.data() + begin, count);
  if (count == 0 || offsets.front().begin > question.begin || offsets.back().end < question.end) return {};
  const auto first = std::ranges::find_if(offsets, [&](const auto& token) { return token.begin > question.begin; });
  const auto last = std::ranges::find_if(offsets, [&](const auto& token) { return token.end >= question.end; });
  const auto number = [&](auto at) {
    return static_cast<std::int32_t>(begin + static_cast<std::size_t>(at - offsets.begin()));
  };
  return {number(first) - 1, number(last)};
}

class SquadDataset final : public Dataset, public QuestionSet {
 public:
  SquadDataset(SquadFile file, const TextOptions& options, Split split, const std::string& name)
      : file_(std::move(file)),
        name_(name),
        tokenizer_(text::open_tokenizer(options.tokenizer)),
        options_(options),
        pad_id_(padding_id(*tokenizer_)),
        rows_(tokenizer_->end_id()) {
    if (split == Split::kTrain) leave_out_misplaced();
    encode_all();
    info_ = {.name = "squad",
             .split = split,
             .classes = tokenizer_->end_id(),
             .kind = SampleKind::kTokens,
             .context = options.max_length,
             .fields = rows_.fields(),
             .has_bytes = false};
    for (const char* field : {kStarts, kEnds}) info_.fields.push_back({.name = field});
  }

  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return rows_.size(); }
  [[nodiscard]] bool is_in_memory() const override { return true; }
  [[nodiscard]] std::vector<int> lengths() const override { return rows_.lengths(); }
  [[nodiscard]] const QuestionSet* question_set() const override { return this; }
  [[nodiscard]] const SquadFile& file() const override { return file_; }

  [[nodiscard]] Fields read_fields(std::span<const std::int64_t> ids) const override {
    for (const std::int64_t id : ids) static_cast<void>(checked(id));
    Fields fields = rows_.stack(ids, options_, pad_id_);
    fields[kStarts] = column(std::ssize(ids), [&](std::int64_t i) { return windows_[ids[i]].answer.first; });
    fields[kEnds] = column(std::ssize(ids), [&](std::int64_t i) { return windows_[ids[i]].answer.last; });
    return fields;
  }

  [[nodiscard]] std::int64_t question_of(std::int64_t sample) const override {
    return windows_[checked(sample)].question;
  }
  [[nodiscard]] QuestionWindow window(std::int64_t sample) const override {
    const std::int64_t question = question_of(sample);
    std::int64_t first = sample;
    while (first > 0 && windows_[first - 1].question == question) --first;
    const text::Encoding window = encode(file_.questions[question])[sample - first];
    const std::size_t begin = first_of_context(window);
    const auto offsets = window.offsets.begin() + static_cast<std::ptrdiff_t>(begin);
    return {question, begin, {offsets, offsets + static_cast<std::ptrdiff_t>(context_tokens(window))}};
  }

 private:
  struct Window {
    std::int32_t question = 0;
    AnswerTokens answer;
  };

  void leave_out_misplaced() {
    if (file_.misplaced_answers == 0) return;
    log_warning(counted(file_.misplaced_answers, "question"),
                " left out of training: the answers differ from their contexts in white space");
    std::erase_if(file_.questions, [](const Question& one) { return !one.answers.empty() && one.begin < 0; });
  }

  [[nodiscard]] std::vector<text::Encoding> encode(const Question& question) const {
    // White space before a question could fill a window.
    const auto text = std::string_view(question.text).substr(text::end_of_spaces(question.text, 0));
    try {
      return tokenizer_->encode_windows(text, file_.contexts[question.context], /*adds_special_tokens=*/true,
                                        {.max_length = static_cast<std::size_t>(options_.max_length),
                                         .stride = static_cast<std::size_t>(options_.stride),
                                         .strategy = text::TruncationStrategy::kOnlySecond});
    } catch (const Error& error) {
      throw Error(error.exit_code(), concat(name_, ": question \"", printable(question.id), "\": ", error.what(),
                                            ": set data.max_length, or a smaller data.stride"));
    }
  }

  void encode_all() {
    constexpr std::int64_t kPiece = 64;
    const std::int64_t count = std::ssize(file_.questions);
    std::int64_t begin = 0;
    const auto next = [&]() -> Job {
      if (begin >= count) return nullptr;
      const std::int64_t first = std::exchange(begin, begin + kPiece);
      return [this, first, end = std::min(count, first + kPiece)]() -> Finish {
        std::vector<std::vector<text::Encoding>> piece;
        for (std::int64_t i = first; i < end; ++i) piece.push_back(encode(file_.questions[i]));
        return [this, first, piece = std::move(piece)] {
          for (std::size_t i = 0; i < piece.size(); ++i) append(static_cast<std::int32_t>(first + i), piece[i]);
        };
      };
    };
    in_order(options_.threads, next, [&] {
      return concat("Tokenizing ", name_, ": ", percent(static_cast<double>(begin) / static_cast<double>(count)));
    });
  }

  void append(std::int32_t question, const std::vector<text::Encoding>& windows) {
    for (const text::Encoding& window : windows) {
      rows_.append(window);
      windows_.push_back({question, answer_in(window, file_.questions[question])});
    }
  }

  SquadFile file_;
  const std::string name_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const TextOptions options_;
  const std::int64_t pad_id_;
  EncodedRows rows_;
  std::vector<Window> windows_;
  DatasetInfo info_;
};

}  // namespace

std::unique_ptr<Dataset> open_squad(const std::filesystem::path& folder, const TextOptions& options, Split split) {
  check_text_options(options, "squad");
  if (options.stride < 0 || options.stride >= options.max_length) {
    throw ConfigError("data.stride = ", options.stride, ", but it must be below data.max_length = ", options.max_length,
                      "; set it to ", options.max_length / 3, ", for example");
  }
  const std::filesystem::path file = split_file(folder, split, {"train.json", "train-v1.1.json", "train-v2.0.json"},
                                                {"dev.json", "dev-v1.1.json", "dev-v2.0.json", "test.json"});
  return std::make_unique<SquadDataset>(read_squad(file), options, split, file.string());
}

}  // namespace sluice::data
