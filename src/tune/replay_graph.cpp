#include "tune/replay_graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/error.h"
#include "tune/replay_messages.h"

namespace sluice::tune {
namespace {

double length(Nanoseconds begin, Nanoseconds end) { return static_cast<double>(end - begin); }

// For an even count, the upper of the two middle values, because it was recorded.
Nanoseconds upper_median(std::vector<Nanoseconds> times) {
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

// Additional time applies to whole actions, not to parts nested in them.
bool takes_more(const SlotPieces& cut, const Piece& piece, const Span& span) {
  const int at = static_cast<int>(&piece - cut.pieces.data());
  return span.phase != Phase::kLoss && span.phase != Phase::kAllReduce && cut.first[piece.span] == at;
}

}  // namespace

ReplayGraph::ReplayGraph(std::span<const RecordedProcess> processes, const StepEdits& edits)
    : processes_(processes), edits_(edits), book_(edits), nodes_(processes.size()), arrive_(processes.size()) {
  zero_ = recorded(0).begin;
  for (int rank = 1; rank < ranks(); ++rank) zero_ = std::min(zero_, recorded(rank).begin);
  source_ = graph_.add(0);
}

StepReplay ReplayGraph::run() {
  check_sums();
  for (int rank = 0; rank < ranks(); ++rank) {
    add_begin(rank);
    add_messages(rank);
  }
  for (int rank = 0; rank < ranks(); ++rank) add_sums(rank);
  add_exchanges();
  for (int rank = 0; rank < ranks(); ++rank) add_rounds(rank);
  book_.check_all_met();
  graph_.run();
  for (int rank = 0; rank < ranks(); ++rank) result_.processes.push_back(replayed(rank));
  result_.step = result_.processes.front().end - result_.processes.front().begin;
  result_.path = path();
  return std::move(result_);
}

void ReplayGraph::next(int rank, int node, Nanoseconds recorded_begin) {
  graph_.wait(node, nodes_[rank].done, length(nodes_[rank].done_at, recorded_begin));
}

void ReplayGraph::add_begin(int rank) {
  ProcessNodes& own = nodes_[rank];
  const StepSpans& spans = recorded(rank);
  own.begin = graph_.add(0, {.rank = rank});
  graph_.wait(own.begin, source_, length(zero_, spans.begin));
  own.done = own.begin;
  own.done_at = spans.begin;
  for (int i = 0; i < static_cast<int>(spans.process.size()); ++i) {
    const Span& span = spans.process[i];
    own.spans.emplace_back();
    if (span.phase == Phase::kAllReduce) own.small_sums.push_back(i);
    if (span.phase != Phase::kLoadWait) continue;
    const double work = book_.edited({WorkKind::kLoad, rank}, length(span.begin, span.end), /*is_whole=*/true);
    const int node = graph_.add(work, {WorkKind::kLoad, rank});
    own.spans.back() = {node, node};
    next(rank, node, span.begin);
    own.done = node;
    own.done_at = span.end;
  }
  std::vector<SlotPieces> cuts;
  for (const StepSpans::Slot& slot : spans.slots) cuts.push_back(pieces_of(slot));
  agree_on_sections(cuts);
  for (int slot = 0; slot < static_cast<int>(cuts.size()); ++slot) {
    own.slots.push_back({std::move(cuts[slot]), {}});
    add_pieces(rank, slot);
  }
}

// Chains the pieces of each section.
void ReplayGraph::add_pieces(int rank, int slot) {
  SlotNodes& own = nodes_[rank].slots[slot];
  const StepSpans::Slot& recorded_slot = recorded(rank).slots[slot];
  int section = -1;
  for (const Piece& piece : own.cut.pieces) {
    const Span& span = recorded_slot.spans[piece.span];
    const std::optional<WorkKind> kind = kind_of(span.phase);
    const WorkLabel label{kind, rank, index(span.stage)};
    Nodes nodes;
    if (kind) {
      const Work work{*kind, rank, index(recorded_slot.replica), index(span.stage), processes_[rank].devices[slot]};
      const bool is_whole = takes_more(own.cut, piece, span);
      nodes.first = nodes.last = graph_.add(book_.edited(work, length(piece.begin, piece.end), is_whole), label);
    } else {
      nodes = {graph_.add(0, label), graph_.add(0, label)};
    }
    const int before = static_cast<int>(own.pieces.size()) - 1;
    own.pieces.push_back(nodes);
    if (own.cut.section[piece.span] == section) {
      graph_.wait(nodes.first, own.pieces[before].last, length(own.cut.pieces[before].end, piece.begin));
    } else if (section < 0) {
      next(rank, nodes.first, piece.begin);
    }
    section = own.cut.section[piece.span];
  }
}

// A thread that waited wakes up some time after the send. A thread that did not wait spent a moment on checking. If it
// now has to wait, it wakes up as late as the others, but not later than would have been noticed.
void ReplayGraph::add_messages(int rank) {
  const std::vector<StepSpans::Slot>& slots = recorded(rank).slots;
  const std::vector<RecordedMessage> messages = messages_of(slots);
  const auto span = [&](const SpanAt& at) -> const Span& { return slots[at.slot].spans[at.span]; };
  std::vector<Nanoseconds> late;
  for (const auto& [sent, waited] : messages)
    if (span(waited).begin < span(sent).end) late.push_back(span(waited).end - span(sent).end);
  const Nanoseconds usual = upper_median(late);
  for (const auto& [sent, waited] : messages) {
    const auto node = [&](const SpanAt& at, bool first) {
      const SlotNodes& slot = nodes_[rank].slots[at.slot];
      return first ? slot.pieces[slot.cut.first[at.span]].first : slot.pieces[slot.cut.last[at.span]].last;
    };
    const Span& wait = span(waited);
    const Nanoseconds sent_at = span(sent).end, after = wait.end - sent_at;
    const bool has_waited = wait.begin < sent_at;
    graph_.wait(node(waited, false), node(waited, true), has_waited ? 0 : length(wait.begin, wait.end));
    graph_.wait(node(waited, false), node(sent, false),
                static_cast<double>(has_waited ? after : std::min(usual, after)));
    result_.waited += wait.end - wait.begin;
    result_.waited_after_sending += std::clamp<Nanoseconds>(after, 0, wait.end - wait.begin);
  }
}

// Adds the rounds and the small sums in time order, then the process's own time before the end.
void ReplayGraph::add_rounds(int rank) {
  ProcessNodes& own = nodes_[rank];
  add_barrier(rank, 0);
  std::multimap<Nanoseconds, std::function<void()>> rounds;
  for (int i = 0; i < static_cast<int>(own.small_sums.size()); ++i)
    rounds.emplace(recorded(rank).process[own.small_sums[i]].begin, [this, rank, i] { add_small_sum(rank, i); });
  const int sections = own.slots.empty() ? 1 : own.slots.front().cut.sections;
  for (int section = 1; section < sections; ++section) {
    Nanoseconds begin = recorded(rank).end;
    for (const SlotNodes& slot : own.slots) {
      for (const Piece& piece : slot.cut.pieces)
        if (slot.cut.section[piece.span] == section) begin = std::min(begin, piece.begin);
    }
    rounds.emplace(begin, [this, rank, section] { add_round(rank, section); });
  }
  for (const auto& [begin, add] : rounds) add();
  own.end = graph_.add(0, {.rank = rank});
  next(rank, own.end, recorded(rank).end);
}

void ReplayGraph::add_round(int rank, int section) {
  for (const SlotNodes& slot : nodes_[rank].slots) {
    const auto is_of_it = [&](const Piece& piece) { return slot.cut.section[piece.span] == section; };
    const auto first = std::ranges::find_if(slot.cut.pieces, is_of_it);
    if (first != slot.cut.pieces.end()) next(rank, slot.pieces[first - slot.cut.pieces.begin()].first, first->begin);
  }
  add_barrier(rank, section);
}

void ReplayGraph::add_barrier(int rank, int section) {
  ProcessNodes& own = nodes_[rank];
  const int all_done = graph_.add(0, {.rank = rank});
  Nanoseconds last = own.done_at;
  graph_.wait(all_done, own.done);
  for (const SlotNodes& slot : own.slots) {
    for (std::size_t i = 0; i < slot.pieces.size(); ++i) {
      if (slot.cut.section[slot.cut.pieces[i].span] != section) continue;
      graph_.wait(all_done, slot.pieces[i].last);
      last = std::max(last, slot.cut.pieces[i].end);
    }
  }
  own.done = all_done;
  own.done_at = last;
}

Nanoseconds ReplayGraph::time(int node) const { return zero_ + std::llround(graph_.begin(node)); }

StepSpans ReplayGraph::replayed(int rank) const {
  const ProcessNodes& own = nodes_[rank];
  StepSpans spans = recorded(rank);
  const auto end_of = [&](int node) { return zero_ + std::llround(graph_.end(node)); };
  spans.begin = time(own.begin);
  spans.end = time(own.end);
  for (std::size_t p = 0; p < own.slots.size(); ++p) {
    const SlotNodes& slot = own.slots[p];
    for (std::size_t s = 0; s < spans.slots[p].spans.size(); ++s) {
      Span& span = spans.slots[p].spans[s];
      span.begin = span.host_begin = time(slot.pieces[slot.cut.first[s]].first);
      span.end = span.host_end = end_of(slot.pieces[slot.cut.last[s]].last);
    }
  }
  for (std::size_t i = 0; i < own.spans.size(); ++i) {
    const Phase phase = spans.process[i].phase;
    if (phase != Phase::kLoadWait && phase != Phase::kAllReduce) continue;
    spans.process[i].begin = time(own.spans[i].first);
    spans.process[i].end = end_of(own.spans[i].last);
  }
  for (std::size_t i = 0; i < own.sums.size(); ++i) {
    BucketSpan& bucket = spans.buckets[i];
    bucket.begin = bucket.all_there = time(own.sums[i].ready);
    for (const ProcessNodes& other : nodes_) bucket.all_there = std::max(bucket.all_there, time(other.sums[i].ready));
    bucket.end = end_of(own.sums[i].exchange);
  }
  return spans;
}

std::vector<EventGraph::Part> ReplayGraph::path() const {
  std::map<WorkLabel, double> sums;
  for (const auto& [label, part] : graph_.path_to(nodes_.front().end)) {
    if (part != 0) sums[label] += part;
  }
  if (const double before = graph_.begin(nodes_.front().begin); before != 0) sums[{.rank = 0}] -= before;
  std::vector<EventGraph::Part> parts;
  for (const auto& [label, sum] : sums) parts.push_back({label, sum});
  std::ranges::stable_sort(parts, std::greater{}, &EventGraph::Part::time);
  return parts;
}

StepReplay replay_step(std::span<const RecordedProcess> processes, const StepEdits& edits) {
  for (const RecordedProcess& process : processes) {
    const auto has_forward = [](const StepSpans::Slot& slot) {
      return std::ranges::any_of(slot.spans, [](const Span& span) { return span.phase == Phase::kForward; });
    };
    if (std::ranges::none_of(process.spans.slots, has_forward))
      throw DataError("step ", process.spans.step,
                      " of the trace has no forward pass: nothing to replay; name a training step with --step");
    if (process.spans.dropped > 0)
      throw DataError("step ", process.spans.step, " of the trace lacks spans that found no room; record one with ",
                      "fewer micro-batches (pipeline.chunks)");
    if (!process.spans.turns.empty())
      throw DataError("the trace is of workers that take turns; replay reads training runs without a parameter server");
  }
  return ReplayGraph(processes, edits).run();
}

}  // namespace sluice::tune
