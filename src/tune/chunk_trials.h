// chunk_trials: which number of micro-batches to run a step in next, and when it is decided, for pipeline.chunks =
// "auto". Told how long each step took it looks at no clock, so that processes that are told the same decide alike.
// Not here: the steps themselves, and what a number is estimated to need (train/plan/choose_chunks.h). Pure; threads:
// values. Order: the start, then whatever is nearest to the fastest so far, more before fewer; each once (the first
// step of all twice, if others will follow: it is cold), then those near the fastest again, while the steps to come are
// expected to stay in the budget.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice::tune {

struct ChunkCandidate {
  int chunks = 1;
  bool fits = true;                        // the memory, as estimated
  double bytes = 0;                        // what it needs, where that is known
  std::optional<double> predicted_s = {};  // of a step
};

// Which of them to try, where `most` is the largest that is of use for time: those that fit. Where none of these does,
// the first larger one that fits; where none at all does, those up to `most`, least need first: an estimate may be too
// high. Requires: in ascending order, with one of at most `most`.
[[nodiscard]] std::vector<ChunkCandidate> worth_trying(const std::vector<ChunkCandidate>& all, int most);

// The `count` that are predicted to be fastest, in ascending order; all of them where one has no prediction, or is not
// estimated to fit.
[[nodiscard]] std::vector<ChunkCandidate> most_promising(std::vector<ChunkCandidate> candidates, std::size_t count);

class ChunkTrials {
 public:
  // Requires: at least one candidate; `start`: what to begin with if it is among them, else the nearest one.
  ChunkTrials(const std::vector<ChunkCandidate>& candidates, int start, double budget_s);

  // In how many chunks to run a step next; nothing when it is decided. Asks nothing of a single candidate, or of a
  // budget of 0.
  [[nodiscard]] std::optional<int> next();
  // Of the step that next() asked for: it took so long, or there was no memory for it.
  void took(double seconds);
  void did_not_fit();

  // The fastest; what to begin with where nothing was tried; nothing where nothing that was tried fits.
  [[nodiscard]] std::optional<int> best() const;
  // "1: 30.1 ms, 2: does not fit"; empty where nothing was tried.
  [[nodiscard]] std::string timings() const;
  [[nodiscard]] bool has_tried(int chunks) const;
  // Those that the budget left no time for.
  [[nodiscard]] std::vector<int> untried() const;

 private:
  struct Trial {
    int chunks = 1;
    bool is_doubtful = false;  // estimated not to fit: tried only while nothing else fits
    double bytes = 0;
    int steps = 0;
    double seconds = 0;  // the shortest step: what else the machine does only adds
    bool has_failed = false;

    [[nodiscard]] bool is_timed() const { return steps > 0 && !has_failed; }
    [[nodiscard]] bool is_untried() const { return steps == 0 && !has_failed; }
  };

  [[nodiscard]] const Trial* fastest() const;
  [[nodiscard]] const Trial* next_untried() const;
  [[nodiscard]] const Trial* next_contender() const;
  [[nodiscard]] const Trial* wanted() const;  // null: nothing
  [[nodiscard]] bool has_time_for(const Trial& trial) const;

  std::vector<Trial> trials_;  // ascending
  std::size_t start_ = 0;
  double budget_s_;
  double spent_s_ = 0;
  int steps_ = 0;
  std::size_t current_ = 0;  // of what next() asked for
};

// "1", "1 and 2", "1, 2 and 4".
[[nodiscard]] std::string listed(const std::vector<int>& numbers);

}  // namespace sluice::tune
