#include "profiler/cupti/attribute.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace sluice::cupti {
namespace {

// Waits use no device time, so their times from events are kept.
bool is_kept(Phase phase) {
  return phase == Phase::kReceiveWait || phase == Phase::kLoadWait || phase == Phase::kEvaluation ||
         phase == Phase::kCheckpoint;
}

// For ascending moments, finds the innermost span whose host interval contains the moment: the one that began last.
// Ties go to the one that ends first, then to the later one in the list.
class InnermostSpan {
 public:
  explicit InnermostSpan(const std::vector<Span>& spans) : spans_(spans) {
    for (std::size_t i = 0; i < spans.size(); ++i) order_.push_back(i);
    std::ranges::stable_sort(order_, {}, [&](std::size_t i) { return spans[i].host_begin; });
  }

  const Span* at(Nanoseconds moment) {
    for (; next_ < order_.size() && spans_[order_[next_]].host_begin <= moment; ++next_) {
      const Span& span = spans_[order_[next_]];
      open_.insert({-span.host_begin, span.host_end, -static_cast<std::int64_t>(order_[next_])});
    }
    while (!open_.empty() && std::get<1>(*open_.begin()) <= moment) open_.erase(open_.begin());
    return open_.empty() ? nullptr : &spans_[static_cast<std::size_t>(-std::get<2>(*open_.begin()))];
  }

 private:
  const std::vector<Span>& spans_;
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;
  std::set<std::tuple<Nanoseconds, Nanoseconds, std::int64_t>> open_;  // innermost first
};

struct Placed {
  const Work* work;
  Nanoseconds launch;
  Tag tag;
};

bool agree(const Span& span, ReplicaId replica, const ActionTag& tag) {
  return tag.phase == span.phase && tag.replica == replica && tag.stage == span.stage &&
         tag.micro_batch == span.micro_batch;
}

class Attributor {
 public:
  Attributor(StepSpans host, const std::vector<StreamKey>& streams, const Records& records)
      : streams_(streams), host_slots_(host.slots) {
    result_.spans = std::move(host);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (streams[i].device >= 0) slot_of_[streams[i]] = i;
    }
    for (const Launch& launch : records.launches) launches_[launch.correlation] = launch.begin;
    for (const External& external : records.externals) tags_[external.correlation] = external.tag;
    on_slot_.resize(host_slots_.size());
  }

  Attribution run(const Records& records) {
    keep_host_spans();
    for (const Work& work : records.work) sort_in(work);
    for (std::size_t slot = 0; slot < on_slot_.size(); ++slot) attribute_to(slot);
    time_buckets();
    Counts& counts = result_.counts;
    counts.dropped = records.dropped;
    counts.unknown = records.unknown;
    for (const Overhead& overhead : records.overheads) counts.overhead += overhead.end - overhead.begin;
    for (const Wait& wait : records.waits) counts.waits += wait.end - wait.begin;
    result_.spans.dropped += counts.dropped + counts.without_times + counts.without_launch + counts.late;
    return std::move(result_);
  }

 private:
  void keep_host_spans() {
    for (std::size_t i = 0; i < host_slots_.size(); ++i) {
      if (streams_[i].device < 0) continue;
      std::erase_if(result_.spans.slots[i].spans, [](const Span& span) { return !is_kept(span.phase); });
    }
  }

  void sort_in(const Work& work) {
    ++result_.counts.work;
    if (work.begin == 0 && work.end == 0) {
      ++result_.counts.without_times;
      return;
    }
    if (work.end <= result_.spans.begin) {
      ++result_.counts.late;
      return;
    }
    const auto tag = tags_.find(work.correlation);
    const Tag known_tag = tag == tags_.end() ? kNoTag : tag->second;
    const auto slot = slot_of_.find(work.where);
    if (slot == slot_of_.end()) return take_by_tag(work, known_tag);
    const auto launch = launches_.find(work.correlation);
    if (launch == launches_.end()) {
      ++result_.counts.without_launch;
      return;
    }
    on_slot_[slot->second].push_back({&work, launch->second, known_tag});
  }

  void attribute_to(std::size_t slot) {
    std::vector<Placed>& list = on_slot_[slot];
    std::ranges::stable_sort(list, {}, &Placed::launch);
    InnermostSpan innermost(host_slots_[slot].spans);
    for (const Placed& placed : list) {
      const Span* action = innermost.at(placed.launch);
      if (action == nullptr) {
        ++result_.counts.outside;
        continue;
      }
      int layer = kNoLayer;
      if (placed.tag != kNoTag) {
        const TagFields tag = decode(placed.tag);
        const bool same = agree(*action, host_slots_[slot].replica, tag.action);
        if (same) layer = tag.layer;
        result_.counts.disagreements += same ? 0 : 1;
      }
      give(slot, {*action, layer, /*is_beside=*/false}, *placed.work);
    }
  }

  void take_by_tag(const Work& work, Tag tag) {
    const TagFields fields = tag == kNoTag ? TagFields{} : decode(tag);
    const std::optional<std::size_t> slot = tag == kNoTag ? std::nullopt : slot_of(fields.action, work.where.device);
    if (!slot) {
      ++result_.counts.elsewhere;
      return;
    }
    const ActionTag& action = fields.action;
    give(*slot, {{action.phase, action.micro_batch, 0, 0, action.stage}, fields.layer, /*is_beside=*/true}, work);
  }

  [[nodiscard]] std::optional<std::size_t> slot_of(const ActionTag& action, int device) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < host_slots_.size(); ++i) {
      const StepSpans::Slot& slot = host_slots_[i];
      if (slot.replica != action.replica || streams_[i].device < 0) continue;
      if (action.stage != kNoStage && std::ranges::find(slot.stages, action.stage) == slot.stages.end()) continue;
      found.push_back(i);
    }
    if (found.size() > 1) std::erase_if(found, [&](std::size_t i) { return streams_[i].device != device; });
    return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
  }

  struct Whose {
    Span action;
    int layer;
    bool is_beside;
  };

  void give(std::size_t slot, const Whose& whose, const Work& work) {
    const Span& action = whose.action;
    KernelTime& row = result_.kernels[{action.phase, whose.layer, work.name}];
    ++row.calls;
    row.time += work.end - work.begin;
    // statistics are excluded, because the slot waits for them
    if (work.is_communication && action.stage != kNoStage) {
      sums_[index(action.stage)].push_back({work.begin, work.end});
      return;
    }
    if (is_kept(action.phase)) return;                                 // its span covers it
    const bool is_beside = whose.is_beside && !work.is_communication;  // the slot waits for statistics
    result_.spans.slots[slot].spans.push_back({action.phase, action.micro_batch, work.begin, work.end, action.stage,
                                               action.host_begin, action.host_end, is_beside});
  }

  // NCCL's kernels give the times of a stage's sums, in bucket order; buckets know when the last process arrived.
  void time_buckets() {
    std::vector<BucketSpan>& buckets = result_.spans.buckets;
    for (auto& [stage, times] : sums_) {
      std::ranges::sort(times);
      std::vector<BucketSpan> own;
      std::ranges::copy_if(buckets, std::back_inserter(own), [&](const auto& b) { return index(b.stage) == stage; });
      std::erase_if(buckets, [&](const BucketSpan& bucket) { return index(bucket.stage) == stage; });
      std::ranges::stable_sort(own, {}, &BucketSpan::begin);
      for (std::size_t i = 0; i < times.size(); ++i) {
        const auto [begin, end] = times[i];
        const bool is_one_each = own.size() == times.size();
        const BucketSpan* const bucket = is_one_each ? &own[i] : last_in(own, end);
        const Nanoseconds all_there = bucket != nullptr ? std::clamp(bucket->all_there, begin, end) : begin;
        buckets.push_back({StageId{stage}, bucket != nullptr ? bucket->bucket : static_cast<int>(i), begin, all_there,
                           end, is_one_each ? own[i].bytes : 0});
      }
    }
  }

  // The latest bucket that was ready when this kernel ended, or else the earliest: for kernels without their bucket.
  static const BucketSpan* last_in(const std::vector<BucketSpan>& buckets, Nanoseconds end) {
    const auto order = [end](const BucketSpan& bucket) {
      const bool fits = bucket.all_there <= end;
      return std::pair(!fits, fits ? -bucket.all_there : bucket.all_there);
    };
    const auto first = std::ranges::min_element(buckets, {}, order);
    return first != buckets.end() ? &*first : nullptr;
  }

  const std::vector<StreamKey>& streams_;
  const std::vector<StepSpans::Slot> host_slots_;
  std::map<StreamKey, std::size_t> slot_of_;
  std::unordered_map<std::uint32_t, Nanoseconds> launches_;
  std::unordered_map<std::uint32_t, Tag> tags_;
  std::vector<std::vector<Placed>> on_slot_;
  std::map<int, std::vector<std::pair<Nanoseconds, Nanoseconds>>> sums_;
  Attribution result_;
};

}  // namespace

void Counts::add(const Counts& other) {
  work += other.work;
  without_times += other.without_times;
  without_launch += other.without_launch;
  late += other.late;
  outside += other.outside;
  elsewhere += other.elsewhere;
  disagreements += other.disagreements;
  dropped += other.dropped;
  unknown += other.unknown;
  overhead += other.overhead;
  waits += other.waits;
}

void Records::append(Records more) {
  const auto move_to_end = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  move_to_end(work, more.work);
  move_to_end(launches, more.launches);
  move_to_end(externals, more.externals);
  move_to_end(waits, more.waits);
  move_to_end(overheads, more.overheads);
  dropped += more.dropped;
  unknown += more.unknown;
}

std::uint64_t count_late(const Records& records, Nanoseconds end) {
  std::unordered_map<std::uint32_t, Nanoseconds> launches;
  for (const Launch& launch : records.launches) launches[launch.correlation] = launch.begin;
  return static_cast<std::uint64_t>(std::ranges::count_if(records.work, [&](const Work& work) {
    const auto launch = launches.find(work.correlation);
    return (launch != launches.end() ? launch->second : work.begin) < end;
  }));
}

Attribution attribute(StepSpans host, const std::vector<StreamKey>& streams, const Records& records) {
  return Attributor(std::move(host), streams, records).run(records);
}

}  // namespace sluice::cupti
