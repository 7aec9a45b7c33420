#include "tune/budget.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::tune {
namespace {

using PartShares = std::array<double, Budget::kParts>;  // [Part]; the rest up to 1 is for the runs

constexpr PartShares kOfPlan{0.6, 0, 0, 0.2, 0};
constexpr PartShares kOfBatch{0.4, 0.1, 0.2, 0.1, 0};

constexpr std::array<const char*, Budget::kParts> kPartWords{"measuring", "searching for each batch",
                                                             "the gradient noise", "searching", "running plans"};

constexpr std::size_t index_of(Budget::Part part) { return static_cast<std::size_t>(part); }

std::string in_seconds(double seconds) { return concat(fixed(seconds, 1), " s"); }

}  // namespace

Budget::Budget(double seconds, bool may_change_batch, std::function<double()> clock, double seconds_ago)
    : seconds_(seconds),
      may_change_batch_(may_change_batch),
      clock_(std::move(clock)),
      begin_(clock_() - seconds_ago),
      part_begin_(begin_) {}

double Budget::share(Part part) const { return seconds_ * (may_change_batch_ ? kOfBatch : kOfPlan).at(index_of(part)); }

double Budget::end_of(Part part) const {
  double end = 0;
  for (std::size_t i = 0; i <= index_of(part); ++i) end += share(static_cast<Part>(i));
  return end;
}

void Budget::begin(Part part) {
  check(part >= now_, "parts of a budget that begin in order");
  const double time = clock_();
  used_.at(index_of(now_)) += time - part_begin_;
  now_ = part, part_begin_ = time;
}

double Budget::left() const {
  if (now_ == Part::kRunning) return std::max(0.0, kUsable * seconds_ - used());
  const double own = share(now_) - (clock_() - part_begin_);
  if (now_ == Part::kSearching) return std::max(0.0, own);
  return std::max(0.0, std::min(own, end_of(now_) - used()));
}

double Budget::used_by(Part part) const {
  return used_.at(index_of(part)) + (part == now_ ? clock_() - part_begin_ : 0);
}

std::string Budget::describe() const {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kParts; ++i) {
    const double most = share(static_cast<Part>(i));
    if (most > 0) words.push_back(concat(kPartWords.at(i), " at most ", in_seconds(most)));
  }
  return concat(join(words, ", "), ", ", kPartWords.at(index_of(Part::kRunning)), " with what is left");
}

std::string Budget::describe_use() const {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto part = static_cast<Part>(i);
    if (share(part) > 0 || part == Part::kRunning)
      words.push_back(concat(kPartWords.at(i), " ", in_seconds(used_by(part))));
  }
  return concat(fixed(used(), 1), " of ", in_seconds(seconds_), ": ", join(words, ", "));
}

}  // namespace sluice::tune
