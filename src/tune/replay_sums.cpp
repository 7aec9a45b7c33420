// The sums over processes in a recorded step: all-reduces of buckets, and small sums of a few numbers.
#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
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
    throw DataError("the traces of rank 0 and rank ", rank, " have different all-reduces in step ", first.step,
                    "; give the files of one run");
  }
  if (!edits_.network) return;
  if (first.buckets.empty())
    throw ConfigError("--bandwidth: the recorded step has no all-reduce over processes, so it uses no network");
  const auto is_unknown = [](const BucketSpan& bucket) { return bucket.bytes <= 0; };
  if (std::ranges::any_of(first.buckets, is_unknown))
    throw ConfigError("--bandwidth: the trace lacks the sizes of its all-reduces; record it again");
}

void ReplayGraph::add_sums(int rank) {
  ProcessNodes& own = nodes_[rank];
  for (int bucket = 0; bucket < static_cast<int>(recorded(rank).buckets.size()); ++bucket) add_ready(rank, bucket);
  for (int i = 0; i < static_cast<int>(own.spans.size()); ++i) {
    if (recorded(rank).process[i].phase != Phase::kAllReduce) continue;
    own.small_sums.push_back(i);
    own.arrivals.push_back(graph_.add(0, {.rank = rank}));
  }
}

// The process is ready for a bucket's all-reduce when the caller and the threads of the other replicas have reached the
// point of their backward at which the caller had completed the bucket.
void ReplayGraph::add_ready(int rank, int bucket) {
  const BucketSpan& span = recorded(rank).buckets[bucket];
  const int node = graph_.add(0, {.rank = rank, .stage = index(span.stage)});
  nodes_[rank].buckets.push_back({.ready = node});
  const Anchor caller = caller_of(rank, span);
  if (caller.piece < 0) return follow_last(rank, node, span.begin);
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

// The same share of the same action in another slot; not later than recorded.
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
void ReplayGraph::add_all_reduces(int rank) {
  const std::vector<BucketNodes>& buckets = nodes_[rank].buckets;
  std::vector<int> order(buckets.size());
  std::iota(order.begin(), order.end(), 0);
  for (const int bucket : order) add_all_reduce(rank, bucket);
  if (!edits_.network) return;
  std::ranges::stable_sort(order, {}, [&](int bucket) { return all_ready(processes_, bucket); });
  for (std::size_t i = 1; i < order.size(); ++i)
    graph_.wait(buckets[order[i]].all_reduce, buckets[order[i - 1]].all_reduce);
}

void ReplayGraph::add_all_reduce(int rank, int bucket) {
  std::vector<BucketNodes>& nodes = nodes_[rank].buckets;
  const std::vector<BucketSpan>& buckets = recorded(rank).buckets;
  const BucketSpan& span = buckets[bucket];
  Nanoseconds begin = all_ready(processes_, bucket);
  std::optional<int> before;  // the stage's previous all-reduce
  for (int other = 0; other < bucket; ++other) {
    if (buckets[other].stage != span.stage || buckets[other].end > span.end) continue;
    before = nodes[other].all_reduce;
    begin = std::max(begin, buckets[other].end);
  }
  double work = between(begin, span.end);
  if (edits_.network) {
    const auto& [bytes_per_s, latency_s, sum_s] = *edits_.network;
    const LinkCost cost = ring_cost(ranks(), {.latency_s = latency_s, .bytes_per_s = bytes_per_s});
    work = (cost.at(static_cast<double>(span.bytes)) + sum_s) * 1e9;
  }
  work = book_.edited({WorkKind::kAllReduce, rank, -1, index(span.stage)}, work, /*is_whole=*/true);
  const int node = nodes[bucket].all_reduce = graph_.add(work, {WorkKind::kAllReduce, rank, index(span.stage)});
  for (const ProcessNodes& process : nodes_) graph_.wait(node, process.buckets[bucket].ready);
  if (before) graph_.wait(node, *before);
}

// The first small sum of a step begins after all buckets are summed.
void ReplayGraph::add_small_sum(int rank, int number) {
  ProcessNodes& own = nodes_[rank];
  const int span = own.small_sums[number];
  const int begin = graph_.add(0, {.rank = rank});
  graph_.wait(own.arrivals[number], begin);
  if (number == 0) {
    for (const BucketNodes& bucket : own.buckets) graph_.wait(own.arrivals[number], bucket.all_reduce, 0);
  }
  double work = between(all_arrived(processes_, number), recorded(rank).process[span].end);
  if (edits_.network && edits_.network->latency_s > 0)  // it sums a few numbers only
    work = ring_cost(ranks(), {.latency_s = edits_.network->latency_s}).latency_s * 1e9;
  work = book_.edited({WorkKind::kAllReduce, rank}, work, /*is_whole=*/false);
  const int exchange = graph_.add(work, {WorkKind::kAllReduce, rank});
  for (const ProcessNodes& process : nodes_) graph_.wait(exchange, process.arrivals[number]);
  append_span(rank, span, {begin, exchange});
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
