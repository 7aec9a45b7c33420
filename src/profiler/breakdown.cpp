#include "profiler/breakdown.h"

#include <algorithm>
#include <limits>
#include <map>

namespace sluice::profiler {
namespace {

// Concurrent activities of a stage, by priority: the first active one counts. A nested span precedes its outer span.
enum class Activity : std::uint8_t {
  kLocalSum,
  kHostToDevice,
  kLoss,
  kWeightGradient,
  kForward,
  kBackward,
  kStageCopy,
  kOptimizer,
  kFill,
  kSteady,
  kDrain,
  kHostToDeviceBeside,  // on queues of their own: exposed if the slot does nothing else and waits for no neighbour
  kStageCopyBeside,
  kLocalSumBeside,
  kReplicaSkew,  // other replicas of this process still run
  kExchange,
  kProcessSkew,
  kOtherExchange,
  kOtherSkew,
  kTotals,
  kLoad,
};
constexpr int kActivities = 21;

Part part_of(Activity activity) {
  switch (activity) {
    case Activity::kHostToDeviceBeside:
    case Activity::kHostToDevice: return Part::kHostToDevice;
    case Activity::kLoss: return Part::kLoss;
    case Activity::kWeightGradient: return Part::kWeightGradient;
    case Activity::kForward: return Part::kForward;
    case Activity::kBackward: return Part::kBackward;
    case Activity::kStageCopyBeside:
    case Activity::kStageCopy: return Part::kStageCopy;
    case Activity::kOptimizer: return Part::kOptimizer;
    case Activity::kFill: return Part::kFill;
    case Activity::kSteady: return Part::kSteady;
    case Activity::kDrain: return Part::kDrain;
    case Activity::kReplicaSkew:
    case Activity::kProcessSkew:
    case Activity::kOtherSkew: return Part::kSkew;
    case Activity::kLocalSum:
    case Activity::kLocalSumBeside:
    case Activity::kExchange:
    case Activity::kOtherExchange:
    case Activity::kTotals: return Part::kAllReduce;
    case Activity::kLoad: return Part::kLoad;
  }
  return Part::kOther;
}

class Sweep {
 public:
  Sweep(Nanoseconds begin, Nanoseconds end) : begin_(begin), end_(end) {}

  void add(Activity activity, Nanoseconds begin, Nanoseconds end) {
    begin = std::max(begin, begin_);
    end = std::min(end, end_);
    if (begin >= end) return;
    edges_.push_back({begin, activity, 1});
    edges_.push_back({end, activity, -1});
  }

  void run(SlotBreakdown& stage) {
    std::ranges::sort(edges_, {}, &Edge::time);
    std::array<int, kActivities> active{};
    Nanoseconds now = begin_;
    for (const Edge& edge : edges_) {
      credit(stage, active, edge.time - now);
      now = edge.time;
      active[static_cast<std::size_t>(edge.activity)] += edge.change;
    }
    credit(stage, active, end_ - now);
  }

 private:
  struct Edge {
    Nanoseconds time;
    Activity activity;
    int change;
  };

  static void credit(SlotBreakdown& stage, const std::array<int, kActivities>& active, Nanoseconds time) {
    if (time == 0) return;
    const auto first = std::ranges::find_if(active, [](int count) { return count > 0; });
    const Part part = first == active.end() ? Part::kOther : part_of(static_cast<Activity>(first - active.begin()));
    stage[part] += time;
    const auto is = [&](Activity activity) { return active[static_cast<std::size_t>(activity)] > 0; };
    const bool is_under_way = is(Activity::kExchange) || is(Activity::kProcessSkew) || is(Activity::kLocalSumBeside);
    if (is_under_way || part == Part::kAllReduce || part == Part::kSkew) stage.all_reduce += time;
  }

  Nanoseconds begin_, end_;
  std::vector<Edge> edges_;
};

// Moments of a slot's pass through its schedule, which ends when its optimizer begins.
struct Landmarks {
  Nanoseconds first_backward = std::numeric_limits<Nanoseconds>::max();
  Nanoseconds last_forward = 0;
  Nanoseconds optimizer = std::numeric_limits<Nanoseconds>::max();
  Nanoseconds end;  // of the last span before the optimizer

  Landmarks(const StepSpans::Slot& slot, Nanoseconds begin_of_step) : end(begin_of_step) {
    for (const Span& span : slot.spans) {
      if (span.phase == Phase::kBackward) first_backward = std::min(first_backward, span.begin);
      if (span.phase == Phase::kForward) last_forward = std::max(last_forward, span.end);
      if (span.phase == Phase::kOptimizer) optimizer = std::min(optimizer, span.begin);
    }
    for (const Span& span : slot.spans) {
      if (span.begin < optimizer) end = std::max(end, span.end);
    }
  }
};

Activity bubble_of(const Span& wait, const Landmarks& slot) {
  if (wait.end <= slot.first_backward) return Activity::kFill;
  return wait.begin >= slot.last_forward ? Activity::kDrain : Activity::kSteady;
}

void add_own_spans(Sweep& sweep, const StepSpans::Slot& slot, const Landmarks& landmarks) {
  for (const Span& span : slot.spans) {
    const auto is = [&](Activity activity) { sweep.add(activity, span.begin, span.end); };
    switch (span.phase) {
      case Phase::kHostToDevice: is(span.is_beside ? Activity::kHostToDeviceBeside : Activity::kHostToDevice); break;
      case Phase::kForward: is(Activity::kForward); break;
      case Phase::kLoss: is(Activity::kLoss); break;
      case Phase::kBackward: is(Activity::kBackward); break;
      case Phase::kWeightGradient: is(Activity::kWeightGradient); break;
      case Phase::kSend:
      case Phase::kReceive: is(span.is_beside ? Activity::kStageCopyBeside : Activity::kStageCopy); break;
      case Phase::kReceiveWait: is(bubble_of(span, landmarks)); break;
      case Phase::kAllReduce: is(span.is_beside ? Activity::kLocalSumBeside : Activity::kLocalSum); break;
      case Phase::kOptimizer: is(Activity::kOptimizer); break;
      case Phase::kLoadWait:
      case Phase::kEvaluation:
      case Phase::kCheckpoint: break;
    }
  }
}

void add_shared_spans(Sweep& sweep, const StepSpans& spans, const std::vector<StageId>& own) {
  for (const BucketSpan& bucket : spans.buckets) {
    const bool is_own = std::ranges::find(own, bucket.stage) != own.end();
    sweep.add(is_own ? Activity::kProcessSkew : Activity::kOtherSkew, bucket.begin, bucket.all_there);
    sweep.add(is_own ? Activity::kExchange : Activity::kOtherExchange, bucket.all_there, bucket.end);
  }
  for (const Span& span : spans.process) {
    if (span.phase == Phase::kLoadWait) sweep.add(Activity::kLoad, span.begin, span.end);
    if (span.phase == Phase::kAllReduce) sweep.add(Activity::kTotals, span.begin, span.end);
  }
}

}  // namespace

StepBreakdown break_down(const StepSpans& spans) {
  StepBreakdown breakdown{.step = spans.end - spans.begin, .late = spans.late, .dropped = spans.dropped};
  std::vector<Landmarks> landmarks;
  std::map<ReplicaId, Nanoseconds> end_of_replica;
  Nanoseconds end_of_pass = spans.begin;
  for (const StepSpans::Slot& slot : spans.slots) {
    const Landmarks& marks = landmarks.emplace_back(slot, spans.begin);
    Nanoseconds& end = end_of_replica[slot.replica];
    end = std::max(end, marks.end);
    end_of_pass = std::max(end_of_pass, marks.end);
  }
  for (std::size_t i = 0; i < spans.slots.size(); ++i) {
    const StepSpans::Slot& slot = spans.slots[i];
    Sweep sweep(spans.begin, spans.end);
    add_own_spans(sweep, slot, landmarks[i]);
    if (!slot.spans.empty()) {
      sweep.add(Activity::kDrain, landmarks[i].end, end_of_replica[slot.replica]);
      sweep.add(Activity::kReplicaSkew, end_of_replica[slot.replica], end_of_pass);
    }
    add_shared_spans(sweep, spans, slot.stages);
    sweep.run(breakdown.slots.emplace_back(SlotBreakdown{slot.replica, slot.device}));
  }
  return breakdown;
}

void add(SlotBreakdown& sum, const SlotBreakdown& other) {
  for (int part = 0; part < kParts; ++part) sum.parts[part] += other.parts[part];
  sum.all_reduce += other.all_reduce;
}

SlotBreakdown StepBreakdown::mean() const {
  SlotBreakdown mean{};
  for (const SlotBreakdown& slot : slots) add(mean, slot);
  const auto count = static_cast<Nanoseconds>(std::max<std::size_t>(slots.size(), 1));
  mean.all_reduce /= count;
  // The remainder of the integer division goes to kOther, so that the parts still add up to the step.
  mean[Part::kOther] = 0;
  Nanoseconds rest = step;
  for (Nanoseconds& time : mean.parts) {
    time /= count;
    rest -= time;
  }
  mean[Part::kOther] = rest;
  return mean;
}

DeviceId StepBreakdown::slowest_device() const {
  std::map<int, Nanoseconds> busy;
  for (const SlotBreakdown& slot : slots) busy[index(slot.device)] += slot.busy();
  const auto slowest =
      std::max_element(busy.begin(), busy.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return slowest == busy.end() ? DeviceId{0} : DeviceId{slowest->first};
}

std::vector<double> StepBreakdown::device_busy() const {
  std::vector<double> busy;
  for (const SlotBreakdown& slot : slots) {
    busy.push_back(step > 0 ? static_cast<double>(slot.busy()) / static_cast<double>(step) : 0.0);
  }
  return busy;
}

}  // namespace sluice::profiler
