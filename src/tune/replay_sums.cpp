#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "core/error.h"
#include "tune/cluster_links.h"
#include "tune/replay_graph.h"

namespace sluice::tune {
namespace {

double between(Nanoseconds begin, Nanoseconds end) {
  return static_cast<double>(std::max<Nanoseconds>(end - begin, 0));
}

bool owns(const StepSpans::Slot& slot, StageId stage) {
  return std::ranges::find(slot.stages, stage) != slot.stages.end();
}

// The process's all-reduces of a few numbers.
std::vector<Span> small_sums_of(const StepSpans& spans) {
  std::vector<Span> sums;
  std::ranges::copy_if(spans.process, std::back_inserter(sums),
                       [](const Span& span) { return span.phase == Phase::kAllReduce; });
  return sums;
}

Nanoseconds all_ready(std::span<const RecordedProcess> processes, int bucket) {
  Nanoseconds last = std::numeric_limits<Nanoseconds>::min();
  for (const RecordedProcess& process : processes) last = std::max(last, process.spans.buckets[bucket].begin);
  return last;
}

// When all processes had arrived at a small sum. The first one begins after all buckets are summed.
Nanoseconds all_arrived(std::span<const RecordedProcess> processes, int number) {
  Nanoseconds last = std::numeric_limits<Nanoseconds>::min();
  for (const RecordedProcess& process : processes) {
    last = std::max(last, small_sums_of(process.spans)[number].begin);
    for (const BucketSpan& bucket : process.spans.buckets) last = number == 0 ? std::max(last, bucket.end) : last;
  }
  return last;
}

}  // namespace

void ReplayGraph::check_sums() const {
  const StepSpans& first = recorded(0);
  const auto is_same = [](const BucketSpan& a, const BucketSpan& b) {
    return a.stage == b.stage && a.bucket == b.bucket;
  };
  for (int rank = 1; rank < ranks(); ++rank) {
    const StepSpans& other = recorded(rank);
    if (std::ranges::equal(first.buckets, other.buckets, is_same) &&
        small_sums_of(first).size() == small_sums_of(other).size())
      continue;
    throw DataError("the traces of rank 0 and rank ", rank, " tell of different sums in step ", first.step,
                    "; give files of one run");
  }
  if (!edits_.network) return;
  if (first.buckets.empty())
    throw ConfigError("--bandwidth: the recorded step has no sums over processes, so there is no network in it");
  const auto is_unknown = [](const BucketSpan& bucket) { return bucket.bytes <= 0; };
  if (std::ranges::any_of(first.buckets, is_unknown))
    throw ConfigError("--bandwidth: the trace does not say how many bytes its sums carry; record it again");
}

void ReplayGraph::add_sums(int rank) {
  for (int bucket = 0; bucket < static_cast<int>(recorded(rank).buckets.size()); ++bucket) add_ready(rank, bucket);
  for (int i = 0; i < static_cast<int>(nodes_[rank].small_sums.size()); ++i)
    arrive_[rank].push_back(graph_.add(0, {.rank = rank}));
}

void ReplayGraph::add_ready(int rank, int bucket) {
  const BucketSpan& span = recorded(rank).buckets[bucket];
  const int node = graph_.add(0, {.rank = rank, .stage = index(span.stage)});
  nodes_[rank].sums.push_back({.ready = node});
  const Anchor caller = caller_of(rank, span);
  if (caller.piece < 0) return next(rank, node, span.begin);
  wait_for(node, rank, caller);
  for (int slot = 0; slot < static_cast<int>(recorded(rank).slots.size()); ++slot) {
    if (slot != caller.slot && owns(recorded(rank).slots[slot], span.stage))
      wait_for(node, rank, same_point(rank, slot, caller));
  }
}

// The thread that completed the bucket: it was reducing this stage's gradients, or was at least at this stage.
ReplayGraph::Anchor ReplayGraph::caller_of(int rank, const BucketSpan& bucket) const {
  Anchor best{.at = bucket.begin};
  int best_fit = -1;
  for (int slot = 0; slot < static_cast<int>(recorded(rank).slots.size()); ++slot) {
    const StepSpans::Slot& recorded_slot = recorded(rank).slots[slot];
    const SlotPieces& cut = nodes_[rank].slots[slot].cut;
    const int piece = cut.piece_at(bucket.begin);
    if (piece < 0 || !owns(recorded_slot, bucket.stage)) continue;
    const Span& span = recorded_slot.spans[cut.pieces[piece].span];
    const bool is_there = bucket.begin <= cut.pieces[piece].end && span.stage == bucket.stage;
    const int fit = !is_there ? 0 : span.phase == Phase::kAllReduce ? 2 : 1;
    if (fit <= best_fit) continue;
    best_fit = fit;
    best = {slot, piece, bucket.begin};
  }
  return best;
}

// The point in the slot's last such action that is as far (in share) as the caller was in its own; not later than
// recorded.
ReplayGraph::Anchor ReplayGraph::same_point(int rank, int slot, const Anchor& caller) const {
  const auto span_of = [&](int in, int piece) -> const Span& {
    const SlotPieces& cut = nodes_[rank].slots[in].cut;
    return recorded(rank).slots[in].spans[cut.outermost[cut.pieces[piece].span]];
  };
  const Span& action = span_of(caller.slot, caller.piece);
  const double share =
      action.end > action.begin ? between(action.begin, caller.at) / between(action.begin, action.end) : 0;
  const SlotPieces& cut = nodes_[rank].slots[slot].cut;
  for (int piece = cut.piece_at(caller.at); piece >= 0; --piece) {
    const Span& own = span_of(slot, piece);
    if (own.phase != action.phase || own.stage != action.stage) continue;
    const auto at = own.begin + static_cast<Nanoseconds>(share * between(own.begin, own.end));
    const Nanoseconds moment = std::min(at, caller.at);
    return {slot, cut.piece_at(moment), moment};
  }
  return {};
}

void ReplayGraph::wait_for(int node, int rank, const Anchor& anchor) {
  if (anchor.piece < 0) return;
  const SlotNodes& slot = nodes_[rank].slots[anchor.slot];
  const Piece& piece = slot.cut.pieces[anchor.piece];
  const Nodes& nodes = slot.pieces[anchor.piece];
  const double whole = between(piece.begin, piece.end);
  if (anchor.at >= piece.end || nodes.first != nodes.last || whole == 0)
    return graph_.wait(node, nodes.last, static_cast<double>(anchor.at - piece.end));
  graph_.wait(node, nodes.last, 0, between(piece.begin, anchor.at) / whole);
}

// As recorded, a stage's all-reduces are sequential. On a given network those of all stages are, in the recorded order.
void ReplayGraph::add_exchanges() {
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::vector<BucketSpan>& buckets = recorded(rank).buckets;
    std::vector<int> order;
    for (int bucket = 0; bucket < static_cast<int>(buckets.size()); ++bucket) {
      add_exchange(rank, bucket);
      order.push_back(bucket);
    }
    std::ranges::stable_sort(order, {}, [&](int bucket) { return all_ready(processes_, bucket); });
    for (std::size_t i = 1; i < order.size() && edits_.network; ++i)
      graph_.wait(nodes_[rank].sums[order[i]].exchange, nodes_[rank].sums[order[i - 1]].exchange);
  }
}

void ReplayGraph::add_exchange(int rank, int bucket) {
  std::vector<SumNodes>& sums = nodes_[rank].sums;
  const std::vector<BucketSpan>& buckets = recorded(rank).buckets;
  const BucketSpan& span = buckets[bucket];
  Nanoseconds begin = all_ready(processes_, bucket);
  std::optional<int> before;
  for (int other = 0; other < bucket; ++other) {
    if (buckets[other].stage != span.stage || buckets[other].end > span.end) continue;
    before = sums[other].exchange;
    begin = std::max(begin, buckets[other].end);
  }
  double work = between(begin, span.end);
  if (edits_.network) {
    const auto& [bytes_per_s, latency_s, sum_s] = *edits_.network;
    const LinkCost cost = ring_cost(ranks(), {.latency_s = latency_s, .bytes_per_s = bytes_per_s});
    work = (cost.at(static_cast<double>(span.bytes)) + sum_s) * 1e9;
  }
  work = book_.edited({WorkKind::kAllReduce, rank, -1, index(span.stage)}, work, /*is_whole=*/true);
  sums[bucket].exchange = graph_.add(work, {WorkKind::kAllReduce, rank, index(span.stage)});
  for (const ProcessNodes& process : nodes_) graph_.wait(sums[bucket].exchange, process.sums[bucket].ready);
  if (before) graph_.wait(sums[bucket].exchange, *before);
}

void ReplayGraph::add_small_sum(int rank, int number) {
  ProcessNodes& own = nodes_[rank];
  const int at = own.small_sums[number];
  const Span& span = recorded(rank).process[at];
  const int begin = graph_.add(0, {.rank = rank});
  next(rank, begin, span.begin);
  graph_.wait(arrive_[rank][number], begin);
  if (number == 0) {
    for (const SumNodes& sum : own.sums) graph_.wait(arrive_[rank][number], sum.exchange, 0);
  }
  double work = between(all_arrived(processes_, number), span.end);
  if (edits_.network && edits_.network->latency_s > 0)  // it sums a few numbers only
    work = ring_cost(ranks(), {.latency_s = edits_.network->latency_s}).latency_s * 1e9;
  work = book_.edited({WorkKind::kAllReduce, rank}, work, /*is_whole=*/false);
  const int exchange = graph_.add(work, {WorkKind::kAllReduce, rank});
  for (int other = 0; other < ranks(); ++other) graph_.wait(exchange, arrive_[other][number]);
  own.spans[at] = {begin, exchange};
  own.done = exchange;
  own.done_at = span.end;
}

std::optional<double> shortest_sum(std::span<const RecordedProcess> processes) {
  std::optional<double> shortest;
  const auto take = [&](Nanoseconds begin, Nanoseconds end) {
    shortest = std::min(shortest.value_or(std::numeric_limits<double>::infinity()), between(begin, end) * 1e-9);
  };
  const StepSpans& first = processes.front().spans;
  for (int bucket = 0; bucket < static_cast<int>(first.buckets.size()); ++bucket)
    take(all_ready(processes, bucket), first.buckets[bucket].end);
  const std::vector<Span> small = small_sums_of(first);
  for (int i = 0; i < static_cast<int>(small.size()); ++i) take(all_arrived(processes, i), small[i].end);
  return shortest;
}

}  // namespace sluice::tune
