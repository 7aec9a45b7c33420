// squad_score: exact match and F1 of answers, as SQuAD's evaluate-v1.1.py and evaluate-v2.0.py count them under Python
// 3. Texts are UTF-8. No LibTorch. Threads: functions are pure; one for each SquadCount.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::task {

enum class SquadVersion { k1, k2 };

// In lower case, without ASCII punctuation and without the words a, an and the, with single spaces.
[[nodiscard]] std::string normalized_answer(std::string_view text);

// Both 0 to 1.
struct AnswerScore {
  double exact = 0;
  double f1 = 0;
};
// The maximum over the gold answers of each score. Version 2: an empty answer is right if there are no gold answers.
[[nodiscard]] AnswerScore score_answer(std::string_view answer, std::span<const std::string> gold,
                                       SquadVersion version);

struct SquadScores {
  double exact_match = 0;  // percent
  double f1 = 0;           // percent
  std::int64_t questions = 0;
};

class SquadCount {
 public:
  explicit SquadCount(SquadVersion version) : version_(version) {}

  // A question without a prediction counts as wrong in version 1; version 2 leaves it out.
  void add(const std::optional<std::string>& answer, std::span<const std::string> gold);

  [[nodiscard]] SquadScores all() const;
  [[nodiscard]] SquadScores with_answer() const { return with_answer_.scores(); }
  [[nodiscard]] SquadScores without_answer() const { return without_answer_.scores(); }

 private:
  struct Sums {
    double exact = 0, f1 = 0;
    std::int64_t questions = 0;
    [[nodiscard]] SquadScores scores() const;
  };

  SquadVersion version_;
  Sums with_answer_, without_answer_;
};

}  // namespace sluice::task
