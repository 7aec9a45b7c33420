// chunk_trials: chooses the next number of micro-batches to try for pipeline.chunks = "auto", and when to stop. Pure:
// the caller reports the time of each step, so that processes with the same reports decide alike.
// Order: the start, then the untried number nearest to the fastest so far, the larger first. The first number runs a
// second step, because its first step is cold. Then numbers close to the fastest repeat within the budget.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice::tune {

struct ChunkCandidate {
  int chunks = 1;
  bool fits = true;  // the estimate fits in memory
  double bytes = 0;  // estimated bytes; 0 if unknown
  std::optional<double> predicted_s = {};
};

// The candidates to try: all that fit, up to `most`, the largest number that can save time. If none fits, the first
// larger one that does. If no candidate fits at all, all up to `most`, because an estimate may be too high. Requires:
// ascending order, with a candidate of at most `most`.
[[nodiscard]] std::vector<ChunkCandidate> worth_trying(const std::vector<ChunkCandidate>& all, int most);

// The `count` fastest predictions, ascending. All candidates if one has no prediction or does not fit.
[[nodiscard]] std::vector<ChunkCandidate> most_promising(std::vector<ChunkCandidate> candidates, std::size_t count);

class ChunkTrials {
 public:
  // Requires: at least one candidate. start: tried first, or the candidate nearest to it.
  ChunkTrials(const std::vector<ChunkCandidate>& candidates, int start, double budget_s);

  // Number of chunks for the next step; empty when the decision is made, and if there is no choice or no budget.
  [[nodiscard]] std::optional<int> next();
  // Reports the step that next() asked for: its time, or that it ran out of memory.
  void took(double seconds);
  void did_not_fit();

  // The fastest number; the start if nothing was tried; empty if no trial fit.
  [[nodiscard]] std::optional<int> best() const;
  // "1: 30.1 ms, 2: does not fit"; empty if nothing was tried.
  [[nodiscard]] std::string timings() const;
  [[nodiscard]] bool has_tried(int chunks) const;
  [[nodiscard]] std::vector<int> untried() const;

 private:
  struct Trial {
    int chunks = 1;
    bool is_doubtful = false;  // estimated not to fit; tried only while nothing else fits
    double bytes = 0;
    int steps = 0;
    double seconds = 0;  // shortest step, because other load only adds time
    bool has_failed = false;

    [[nodiscard]] bool is_timed() const { return steps > 0 && !has_failed; }
    [[nodiscard]] bool is_untried() const { return steps == 0 && !has_failed; }
  };

  [[nodiscard]] const Trial* fastest() const;
  [[nodiscard]] const Trial* next_untried() const;
  [[nodiscard]] const Trial* next_contender() const;
  [[nodiscard]] const Trial* wanted() const;
  [[nodiscard]] bool has_time_for(const Trial& trial) const;

  std::vector<Trial> trials_;
  std::size_t start_ = 0;
  double budget_s_;
  double spent_s_ = 0;
  int steps_ = 0;
  std::size_t current_ = 0;  // trial that next() asked for
};

[[nodiscard]] std::string listed(const std::vector<int>& numbers);

}  // namespace sluice::tune
