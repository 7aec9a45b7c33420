// answers: from the logits of a question's windows to the text of its answer, as Hugging Face's example for questions
// does. Each window proposes the pairs of its most probable starts and ends that lie in the context; the pair with the
// largest sum of logits over all windows is the answer. Among equal sums the earlier window, start and end come first;
// NaN counts as minus infinity. No LibTorch. Threads: one for each search.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/encoding.h"

namespace sluice::task {

struct AnswerOptions {
  int most = 20;         // starts and ends of a window, and answers, that are kept
  int most_tokens = 30;  // of an answer
  // SQuAD 2.0: a question may have no answer. Position 0 of each window stands for none; its score is the smallest of
  // all windows. "" is the answer if it exceeds the best answer's by more than the threshold.
  bool may_have_none = false;
  double none_threshold = 0;
};

struct WindowLogits {
  std::span<const double> starts, ends;      // for each token of the window; both have the same size
  std::size_t first_context = 0;             // tokens first_context .. + offsets.size() - 1 are of the context
  std::span<const text::CharRange> offsets;  // of these tokens in the whole context
};

struct Answer {
  text::CharRange where;
  double score = -std::numeric_limits<double>::infinity();
};

class AnswerSearch {
 public:
  explicit AnswerSearch(const AnswerOptions& options) : options_(options) {}

  void add(const WindowLogits& window);

  [[nodiscard]] const std::vector<Answer>& best() const { return best_; }  // largest score first
  [[nodiscard]] double none_score() const { return none_score_; }
  // Empty: no answer, or no window has context.
  [[nodiscard]] std::string text(std::string_view context) const;
  // none_score() minus the score of the best answer that is not empty, in SQuAD 2.0's null_odds.json.
  [[nodiscard]] double none_odds() const;

 private:
  [[nodiscard]] const Answer* best_with_text() const;

  AnswerOptions options_;
  std::vector<Answer> best_;
  double none_score_ = std::numeric_limits<double>::infinity();
};

// The part of valid UTF-8 between two code points; what lies behind the end is left out.
[[nodiscard]] std::string_view text_between(std::string_view text, text::CharRange where);

}  // namespace sluice::task
