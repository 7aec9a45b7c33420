#include "tune/replay_graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/median.h"

namespace sluice::tune {
namespace {

double length(Nanoseconds begin, Nanoseconds end) { return static_cast<double>(end - begin); }

const Span& span_at(const StepSpans& step, const SpanAt& at) { return step.slots[at.slot].spans[at.span]; }

bool has_waited(const Span& sent, const Span& waited) { return waited.begin < sent.end; }

Nanoseconds median_wake_up(const StepSpans& step, const std::vector<RecordedMessage>& messages) {
  std::vector<Nanoseconds> wake_ups;
  for (const RecordedMessage& message : messages) {
    const Span &sent = span_at(step, message.sent), &waited = span_at(step, message.waited);
    if (has_waited(sent, waited)) wake_ups.push_back(waited.end - sent.end);
  }
  return wake_ups.empty() ? 0 : upper_median(std::move(wake_ups));
}

// Additional time applies to whole actions, not to parts nested in them.
bool takes_more(const SlotPieces& cut, const Piece& piece, const Span& span) {
  const int at = static_cast<int>(&piece - cut.pieces.data());
  return span.phase != Phase::kLoss && span.phase != Phase::kAllReduce && cut.first[piece.span] == at;
}

void check_is_whole_training_step(const StepSpans& spans) {
  const auto has_forward = [](const StepSpans::Slot& slot) {
    return std::ranges::any_of(slot.spans, [](const Span& span) { return span.phase == Phase::kForward; });
  };
  if (std::ranges::none_of(spans.slots, has_forward))
    throw DataError("step ", spans.step,
                    " of the trace has no forward pass: nothing to replay; name a training step with --step");
  if (spans.dropped > 0)
    throw DataError("step ", spans.step, " of the trace is incomplete, because the recorder ran out of room; record a ",
                    "step with fewer micro-batches (pipeline.chunks)");
  if (!spans.turns.empty())
    throw DataError(
        "the trace is of virtual workers of a parameter server; replay needs a run without a parameter server");
}

}  // namespace

ReplayGraph::ReplayGraph(std::span<const RecordedProcess> processes, const StepEdits& edits)
    : processes_(processes), edits_(edits), book_(edits), nodes_(processes.size()) {
  zero_ = recorded(0).begin;
  for (int rank = 1; rank < ranks(); ++rank) zero_ = std::min(zero_, recorded(rank).begin);
  source_ = graph_.add(0);
}

StepReplay ReplayGraph::run() {
  check_sums();
  for (int rank = 0; rank < ranks(); ++rank) {
    add_begin(rank);
    add_loads(rank);
    add_slots(rank);
    add_messages(rank);
  }
  for (int rank = 0; rank < ranks(); ++rank) add_sums(rank);
  for (int rank = 0; rank < ranks(); ++rank) add_all_reduces(rank);
  for (int rank = 0; rank < ranks(); ++rank) {
    add_rounds(rank);
    add_end(rank);
  }
  book_.check_all_met();
  graph_.run();
  for (int rank = 0; rank < ranks(); ++rank) result_.processes.push_back(replayed(rank));
  result_.step = result_.processes.front().end - result_.processes.front().begin;
  result_.path = path();
  return std::move(result_);
}

void ReplayGraph::follow_last(int rank, int node, Nanoseconds recorded_begin) {
  graph_.wait(node, nodes_[rank].last, length(nodes_[rank].last_end, recorded_begin));
}

void ReplayGraph::append_span(int rank, int span, Nodes nodes) {
  ProcessNodes& own = nodes_[rank];
  const Span& recorded_span = recorded(rank).process[span];
  follow_last(rank, nodes.first, recorded_span.begin);
  own.spans[span] = nodes;
  own.last = nodes.last;
  own.last_end = recorded_span.end;
}

void ReplayGraph::add_begin(int rank) {
  ProcessNodes& own = nodes_[rank];
  own.begin = own.last = graph_.add(0, {.rank = rank});
  own.last_end = recorded(rank).begin;
  graph_.wait(own.begin, source_, length(zero_, own.last_end));
}

void ReplayGraph::add_loads(int rank) {
  const std::vector<Span>& spans = recorded(rank).process;
  nodes_[rank].spans.resize(spans.size());
  for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
    if (spans[i].phase != Phase::kLoadWait) continue;
    const double work = length(spans[i].begin, spans[i].end);
    const int node =
        graph_.add(book_.edited({WorkKind::kLoad, rank}, work, /*is_whole=*/true), {WorkKind::kLoad, rank});
    append_span(rank, i, {node, node});
  }
}

void ReplayGraph::add_slots(int rank) {
  std::vector<SlotPieces> cuts;
  for (const StepSpans::Slot& slot : recorded(rank).slots) cuts.push_back(pieces_of(slot));
  agree_on_sections(cuts);
  for (SlotPieces& cut : cuts) {
    nodes_[rank].slots.push_back({std::move(cut), {}});
    add_pieces(rank, static_cast<int>(nodes_[rank].slots.size()) - 1);
  }
}

// Chains the pieces of each section. The first section follows the process; add_round() links the later ones.
void ReplayGraph::add_pieces(int rank, int slot) {
  SlotNodes& own = nodes_[rank].slots[slot];
  const Piece* before = nullptr;
  for (const Piece& piece : own.cut.pieces) {
    const Nodes nodes = add_piece(rank, slot, piece);
    if (before == nullptr) {
      follow_last(rank, nodes.first, piece.begin);
    } else if (own.cut.section_of(piece) == own.cut.section_of(*before)) {
      graph_.wait(nodes.first, own.pieces.back().last, length(before->end, piece.begin));
    }
    own.pieces.push_back(nodes);
    before = &piece;
  }
}

ReplayGraph::Nodes ReplayGraph::add_piece(int rank, int slot, const Piece& piece) {
  const StepSpans::Slot& recorded_slot = recorded(rank).slots[slot];
  const Span& span = recorded_slot.spans[piece.span];
  const std::optional<WorkKind> kind = kind_of(span.phase);
  const WorkLabel label{kind, rank, index(span.stage)};
  if (!kind) {
    const int first = graph_.add(0, label);
    return {first, graph_.add(0, label)};
  }
  const Work work{*kind, rank, index(recorded_slot.replica), index(span.stage), processes_[rank].devices[slot]};
  const bool is_whole = takes_more(nodes_[rank].slots[slot].cut, piece, span);
  const int node = graph_.add(book_.edited(work, length(piece.begin, piece.end), is_whole), label);
  return {node, node};
}

void ReplayGraph::add_messages(int rank) {
  const std::vector<RecordedMessage> messages = messages_of(recorded(rank).slots);
  const Nanoseconds usual_wake_up = median_wake_up(recorded(rank), messages);
  for (const RecordedMessage& message : messages) add_message(rank, message, usual_wake_up);
}

// A thread that waited wakes up some time after the send. A thread that did not wait spent a moment on checking. If it
// now has to wait, it wakes up as late as the others, but not later than would have been noticed.
void ReplayGraph::add_message(int rank, const RecordedMessage& message, Nanoseconds usual_wake_up) {
  const Span &sent = span_at(recorded(rank), message.sent), &waited = span_at(recorded(rank), message.waited);
  const auto nodes_at = [&](const SpanAt& at) { return nodes_[rank].slots[at.slot].of_span(at.span); };
  const Nodes wait = nodes_at(message.waited);
  const Nanoseconds duration = waited.end - waited.begin, after_sending = waited.end - sent.end;
  const bool waits = has_waited(sent, waited);
  graph_.wait(wait.last, wait.first, waits ? 0 : static_cast<double>(duration));
  graph_.wait(wait.last, nodes_at(message.sent).last,
              static_cast<double>(waits ? after_sending : std::min(usual_wake_up, after_sending)));
  result_.waited += duration;
  result_.waited_after_sending += std::clamp<Nanoseconds>(after_sending, 0, duration);
}

Nanoseconds ReplayGraph::begin_of_section(int rank, int section) const {
  Nanoseconds begin = recorded(rank).end;
  for (const SlotNodes& slot : nodes_[rank].slots) {
    for (const Piece& piece : slot.cut.pieces)
      if (slot.cut.section_of(piece) == section) begin = std::min(begin, piece.begin);
  }
  return begin;
}

// In time order.
std::vector<ReplayGraph::Round> ReplayGraph::rounds_of(int rank) const {
  const ProcessNodes& own = nodes_[rank];
  std::vector<Round> rounds;
  for (int i = 0; i < static_cast<int>(own.small_sums.size()); ++i)
    rounds.push_back({recorded(rank).process[own.small_sums[i]].begin, /*is_small_sum=*/true, i});
  const int sections = own.slots.empty() ? 1 : own.slots.front().cut.sections;
  for (int section = 1; section < sections; ++section)
    rounds.push_back({begin_of_section(rank, section), /*is_small_sum=*/false, section});
  std::ranges::stable_sort(rounds, {}, &Round::begin);
  return rounds;
}

void ReplayGraph::add_rounds(int rank) {
  add_barrier(rank, 0);
  for (const Round& round : rounds_of(rank)) {
    if (round.is_small_sum) {
      add_small_sum(rank, round.number);
    } else {
      add_round(rank, round.number);
    }
  }
}

void ReplayGraph::add_round(int rank, int section) {
  for (const SlotNodes& slot : nodes_[rank].slots) {
    const auto is_in_section = [&](const Piece& piece) { return slot.cut.section_of(piece) == section; };
    const auto first = std::ranges::find_if(slot.cut.pieces, is_in_section);
    if (first == slot.cut.pieces.end()) continue;
    follow_last(rank, slot.pieces[first - slot.cut.pieces.begin()].first, first->begin);
  }
  add_barrier(rank, section);
}

// All threads of the process wait for each other after the section.
void ReplayGraph::add_barrier(int rank, int section) {
  ProcessNodes& own = nodes_[rank];
  const int barrier = graph_.add(0, {.rank = rank});
  graph_.wait(barrier, own.last);
  for (const SlotNodes& slot : own.slots) {
    for (std::size_t i = 0; i < slot.pieces.size(); ++i) {
      if (slot.cut.section_of(slot.cut.pieces[i]) != section) continue;
      graph_.wait(barrier, slot.pieces[i].last);
      own.last_end = std::max(own.last_end, slot.cut.pieces[i].end);
    }
  }
  own.last = barrier;
}

void ReplayGraph::add_end(int rank) {
  nodes_[rank].end = graph_.add(0, {.rank = rank});
  follow_last(rank, nodes_[rank].end, recorded(rank).end);
}

Nanoseconds ReplayGraph::begin_of(int node) const { return zero_ + std::llround(graph_.begin(node)); }
Nanoseconds ReplayGraph::end_of(int node) const { return zero_ + std::llround(graph_.end(node)); }

StepSpans ReplayGraph::replayed(int rank) const {
  const ProcessNodes& own = nodes_[rank];
  StepSpans spans = recorded(rank);
  spans.begin = begin_of(own.begin);
  spans.end = begin_of(own.end);
  for (std::size_t slot = 0; slot < own.slots.size(); ++slot) {
    for (std::size_t i = 0; i < spans.slots[slot].spans.size(); ++i) {
      Span& span = spans.slots[slot].spans[i];
      const Nodes nodes = own.slots[slot].of_span(static_cast<int>(i));
      span.begin = span.host_begin = begin_of(nodes.first);
      span.end = span.host_end = end_of(nodes.last);
    }
  }
  for (std::size_t i = 0; i < own.spans.size(); ++i) {
    Span& span = spans.process[i];
    if (span.phase != Phase::kLoadWait && span.phase != Phase::kAllReduce) continue;
    span.begin = begin_of(own.spans[i].first);
    span.end = end_of(own.spans[i].last);
  }
  for (std::size_t i = 0; i < own.buckets.size(); ++i) {
    BucketSpan& bucket = spans.buckets[i];
    bucket.begin = bucket.all_there = begin_of(own.buckets[i].ready);
    for (const ProcessNodes& other : nodes_)
      bucket.all_there = std::max(bucket.all_there, begin_of(other.buckets[i].ready));
    bucket.end = end_of(own.buckets[i].all_reduce);
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
  for (const RecordedProcess& process : processes) check_is_whole_training_step(process.spans);
  return ReplayGraph(processes, edits).run();
}

}  // namespace sluice::tune
