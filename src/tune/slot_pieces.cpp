#include "tune/slot_pieces.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

namespace sluice::tune {
namespace {

// If spans begin together, an empty span comes first, because it was finished first, then outer ones before inner.
std::vector<int> in_order_of_time(const std::vector<Span>& spans) {
  std::vector<int> order(spans.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int i) {
    const Span& span = spans[i];
    return std::tuple(span.begin, span.end > span.begin, -span.end, i);
  });
  return order;
}

class Cutter {
 public:
  explicit Cutter(const std::vector<Span>& spans) : spans_(spans) {
    cut_.first.resize(spans.size());
    cut_.last.resize(spans.size());
    cut_.outermost.resize(spans.size());
    cut_.section.resize(spans.size());
  }

  SlotPieces run() {
    for (const int i : in_order_of_time(spans_)) open(i);
    while (!open_.empty()) close();
    return std::move(cut_);
  }

 private:
  struct Open {
    int span;
    Nanoseconds end;
  };

  void open(int span) {
    const Nanoseconds begin = std::max(spans_[span].begin, now_);
    while (!open_.empty() && open_.back().end <= begin) close();
    if (!open_.empty() && begin > now_) add(open_.back().span, begin);
    now_ = begin;
    // A span in the background (is_beside) takes no time of the slot.
    Nanoseconds end = spans_[span].is_beside ? begin : std::max(spans_[span].end, begin);
    if (!open_.empty()) end = std::min(end, open_.back().end);
    cut_.first[span] = static_cast<int>(cut_.pieces.size());
    cut_.outermost[span] = open_.empty() ? span : open_.front().span;
    open_.push_back({span, end});
  }

  void close() {
    const auto [span, end] = open_.back();
    open_.pop_back();
    if (end > now_ || cut_.first[span] == static_cast<int>(cut_.pieces.size())) add(span, end);
    cut_.last[span] = static_cast<int>(cut_.pieces.size()) - 1;
  }

  void add(int span, Nanoseconds end) {
    cut_.pieces.push_back({span, now_, end});
    now_ = end;
  }

  const std::vector<Span>& spans_;
  SlotPieces cut_;
  std::vector<Open> open_;
  Nanoseconds now_ = std::numeric_limits<Nanoseconds>::min();
};

// Work that each stage of a slot does once per round after the pass. A stage's first all-reduce is of the pass.
bool is_of_a_round(const Span& span, std::set<StageId>& reduced) {
  if (index(span.micro_batch) >= 0 || index(span.stage) < 0 || span.is_beside) return false;
  if (span.phase == Phase::kAllReduce) return !reduced.insert(span.stage).second;
  return span.phase == Phase::kOptimizer || span.phase == Phase::kReceive;
}

}  // namespace

int SlotPieces::piece_at(Nanoseconds time) const {
  const auto next = std::ranges::upper_bound(pieces, time, {}, &Piece::begin);
  return static_cast<int>(next - pieces.begin()) - 1;
}

SlotPieces pieces_of(const StepSpans::Slot& slot) {
  SlotPieces cut = Cutter(slot.spans).run();
  const int stages = std::max<int>(1, static_cast<int>(slot.stages.size()));
  std::set<StageId> reduced;
  int rounds = 0;
  for (std::size_t i = 0; i < cut.pieces.size(); ++i) {
    const int outer = cut.outermost[cut.pieces[i].span];
    if (cut.first[outer] != static_cast<int>(i)) continue;
    if (rounds > 0 || is_of_a_round(slot.spans[outer], reduced)) cut.section[outer] = 1 + rounds++ / stages;
  }
  cut.sections = 1 + (rounds + stages - 1) / stages;
  for (std::size_t i = 0; i < cut.section.size(); ++i) cut.section[i] = cut.section[cut.outermost[i]];
  return cut;
}

void agree_on_sections(std::vector<SlotPieces>& slots) {
  const auto differs = [&](const SlotPieces& cut) { return cut.sections != slots.front().sections; };
  if (std::ranges::none_of(slots, differs)) return;
  for (SlotPieces& cut : slots) {
    for (int& section : cut.section) section = std::min(section, 1);
    cut.sections = 2;
  }
}

}  // namespace sluice::tune
