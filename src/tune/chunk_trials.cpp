#include "tune/chunk_trials.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::tune {
namespace {

constexpr int kMostSteps = 4;       // per number, including the first
constexpr double kContends = 1.25;  // relative to the fastest; slower numbers are not repeated

}  // namespace

std::vector<ChunkCandidate> worth_trying(const std::vector<ChunkCandidate>& all, int most) {
  std::vector<ChunkCandidate> fitting, small;
  for (const ChunkCandidate& candidate : all) {
    if (candidate.chunks <= most) small.push_back(candidate);
    if (candidate.fits && (candidate.chunks <= most || fitting.empty())) fitting.push_back(candidate);
  }
  return fitting.empty() ? small : fitting;
}

std::vector<ChunkCandidate> most_promising(std::vector<ChunkCandidate> candidates, std::size_t count) {
  const bool are_known = std::ranges::all_of(
      candidates, [](const ChunkCandidate& one) { return one.predicted_s.has_value() && one.fits; });
  if (!are_known || candidates.size() <= count) return candidates;
  std::ranges::stable_sort(candidates, {}, &ChunkCandidate::predicted_s);
  candidates.resize(count);
  std::ranges::sort(candidates, {}, &ChunkCandidate::chunks);
  return candidates;
}

ChunkTrials::ChunkTrials(const std::vector<ChunkCandidate>& candidates, int start, double budget_s)
    : budget_s_(budget_s) {
  check(!candidates.empty(), "at least one number of chunks to try");
  for (const ChunkCandidate& candidate : candidates)
    trials_.push_back({.chunks = candidate.chunks, .is_doubtful = !candidate.fits, .bytes = candidate.bytes});
  std::ranges::sort(trials_, {}, &Trial::chunks);
  const auto distance = [&](const Trial& trial) { return std::abs(trial.chunks - start); };
  start_ = static_cast<std::size_t>(std::ranges::min_element(trials_, {}, distance) - trials_.begin());
}

const ChunkTrials::Trial* ChunkTrials::fastest() const {
  const Trial* best = nullptr;
  for (const Trial& trial : trials_) {
    if (trial.is_timed() && (best == nullptr || trial.seconds < best->seconds)) best = &trial;
  }
  return best;
}

const ChunkTrials::Trial* ChunkTrials::next_untried() const {
  const Trial* const best = fastest();
  const auto from = best != nullptr ? best - trials_.data() : static_cast<std::ptrdiff_t>(start_);
  const auto rank = [&](const Trial& trial) {
    const std::ptrdiff_t away = &trial - trials_.data() - from;
    // Doubtful candidates come last, least memory first.
    return std::tuple(trial.is_doubtful, trial.is_doubtful ? trial.bytes : 0.0, std::abs(away), away < 0);
  };
  const Trial* next = nullptr;
  for (const Trial& trial : trials_) {
    if (!trial.is_untried() || (trial.is_doubtful && best != nullptr)) continue;
    if (next == nullptr || rank(trial) < rank(*next)) next = &trial;
  }
  return next;
}

const ChunkTrials::Trial* ChunkTrials::next_contender() const {
  const Trial* const best = fastest();
  const Trial* next = nullptr;
  for (const Trial& trial : trials_) {
    if (!trial.is_timed() || trial.steps >= kMostSteps || trial.seconds > kContends * best->seconds) continue;
    if (next == nullptr || std::pair(trial.steps, trial.seconds) < std::pair(next->steps, next->seconds)) next = &trial;
  }
  return next;
}

const ChunkTrials::Trial* ChunkTrials::wanted() const {
  const Trial* const best = fastest();
  if (best == nullptr) return next_untried();
  if (steps_ == 1) return best;
  const Trial* const untried = next_untried();
  return untried != nullptr ? untried : next_contender();
}

bool ChunkTrials::has_time_for(const Trial& trial) const {
  const Trial* const best = fastest();
  if (best == nullptr) return true;
  // A second step of the same number alone gives no comparison.
  const int steps = steps_ == 1 && next_untried() != nullptr ? 2 : 1;
  return spent_s_ + steps * (trial.is_timed() ? trial.seconds : best->seconds) <= budget_s_;
}

std::optional<int> ChunkTrials::next() {
  if (trials_.size() < 2 || budget_s_ <= 0) return std::nullopt;
  const Trial* const trial = wanted();
  if (trial == nullptr || !has_time_for(*trial)) return std::nullopt;
  current_ = static_cast<std::size_t>(trial - trials_.data());
  return trial->chunks;
}

void ChunkTrials::took(double seconds) {
  Trial& trial = trials_[current_];
  trial.seconds = trial.steps == 0 ? seconds : std::min(trial.seconds, seconds);
  ++trial.steps;
  ++steps_;
  spent_s_ += seconds;
}

void ChunkTrials::did_not_fit() { trials_[current_].has_failed = true; }

std::optional<int> ChunkTrials::best() const {
  if (const Trial* best = fastest()) return best->chunks;
  const bool has_failed = std::ranges::any_of(trials_, &Trial::has_failed);
  return has_failed ? std::nullopt : std::optional(trials_[start_].chunks);
}

std::string ChunkTrials::timings() const {
  std::vector<std::string> each;
  for (const Trial& trial : trials_) {
    if (trial.is_untried()) continue;
    each.push_back(
        concat(trial.chunks, ": ", trial.has_failed ? "does not fit" : concat(fixed(trial.seconds * 1000, 1), " ms")));
  }
  return join(each, ", ");
}

bool ChunkTrials::has_tried(int chunks) const {
  return std::ranges::any_of(trials_,
                             [&](const Trial& trial) { return trial.chunks == chunks && !trial.is_untried(); });
}

std::vector<int> ChunkTrials::untried() const {
  std::vector<int> numbers;
  for (const Trial& trial : trials_) {
    if (steps_ > 0 && trial.is_untried() && !trial.is_doubtful) numbers.push_back(trial.chunks);
  }
  return numbers;
}

std::string listed(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  if (words.size() < 2) return join(words, "");
  const std::string last = words.back();
  words.pop_back();
  return concat(join(words, ", "), " and ", last);
}

}  // namespace sluice::tune
