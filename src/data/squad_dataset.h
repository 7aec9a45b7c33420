// squad_dataset: windows of questions and their contexts, for extractive question answering. A sample is a window:
// question, then a part of the context, with the special tokens of the tokenizer. Windows of a question overlap by
// TextOptions::stride tokens. Fields: inputs, mask, types, and the tokens `starts` and `ends` of the first answer: 0 if
// the window does not hold it all, kNoTarget if the answer differs from the context in white space (for training these
// questions are left out, with a warning).
// Threads: const, any number. Errors: DataError for files; ConfigError for options that cannot work.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/squad_file.h"
#include "text/encoding.h"

namespace sluice::data {

struct QuestionWindow {
  std::int64_t question = 0;             // in QuestionSet::file().questions
  std::size_t first_context = 0;         // token of the window that begins the context
  std::vector<text::CharRange> offsets;  // of the window's tokens of the context, in the whole context
};

class QuestionSet {
 public:
  virtual ~QuestionSet() = default;
  [[nodiscard]] virtual const SquadFile& file() const = 0;
  // sample, here and below: Dataset::sample_in_whole().
  [[nodiscard]] virtual std::int64_t question_of(std::int64_t sample) const = 0;
  // Encodes the question again.
  [[nodiscard]] virtual QuestionWindow window(std::int64_t sample) const = 0;
};

// folder: with train.json or train-v*.json, and dev.json, dev-v*.json or test.json.
[[nodiscard]] std::unique_ptr<Dataset> open_squad(const std::filesystem::path& folder, const TextOptions& options,
                                                  Split split);

}  // namespace sluice::data
