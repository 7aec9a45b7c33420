#include "profiler/trace_events.h"

#include <algorithm>

#include "core/concat.h"
#include "profiler/phase_names.h"

namespace sluice::profiler {
namespace {

// First rows of a slot; stage k uses row + k. Readers interpret a tid as a stream, and stream 0 is special.
constexpr int kCompute = 10, kCopies = 1010, kWaits = 2010, kSums = 3010;
constexpr int kBesides = 20010;
constexpr int kLanes = 16;

// Slot numbers must differ from process ids, which the kernel limits to 2^22 (proc(5), pid_max).
constexpr int kFirstSlot = 1 << 22;

// Rows of the process after its loop's row: loop work concurrent with steps, then the calls for each slot.
constexpr int kBeside = 1, kFirstCalls = 2;

constexpr Nanoseconds kShortest = 2000;  // shortest bar shown as GPU work

enum class Kind { kCompute, kCopy, kWait };

Kind kind_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
    case Phase::kLoss:
    case Phase::kBackward:
    case Phase::kWeightGradient:
    case Phase::kOptimizer:
    case Phase::kEvaluation:
    case Phase::kCheckpoint:
    case Phase::kAllReduce: return Kind::kCompute;  // of local replicas, in the stage's own thread
    case Phase::kHostToDevice:
    case Phase::kSend:
    case Phase::kReceive: return Kind::kCopy;
    case Phase::kLoadWait:
    case Phase::kReceiveWait: return Kind::kWait;
  }
  return Kind::kCompute;
}

// HolisticTraceAnalysis treats "^nccl.*Kernel" as communication and names that begin with "Memcpy" as memory.
std::string name_of(const Span& span) {
  const std::string of = index(span.micro_batch) >= 0 ? concat(" mb ", index(span.micro_batch)) : "";
  switch (span.phase) {
    case Phase::kHostToDevice: return concat("Memcpy HtoD (Pinned -> Device)", of);
    case Phase::kSend:
    case Phase::kReceive: return concat("Memcpy PtoP (Device -> Device) ", phase_word(span.phase), of);
    case Phase::kAllReduce: return "ncclKernel local sum";
    default: return concat(phase_word(span.phase), of);
  }
}

int first_row(Kind kind) { return kind == Kind::kCopy ? kCopies : kind == Kind::kWait ? kWaits : kCompute; }

// -1: no workers took turns.
int turn_at(const StepSpans& spans, Nanoseconds at) {
  const auto next = std::ranges::upper_bound(spans.turns, at, {}, &StepSpans::Turn::begin);
  return static_cast<int>(next - spans.turns.begin()) - 1;
}

std::string row_name(Kind kind, StageId stage) {
  const std::string of = index(stage) >= 0 ? concat("stage ", index(stage)) : "all stages";
  if (kind == Kind::kCopy) return concat(of, " copies");
  if (kind == Kind::kWait) return concat(of, " waits");
  return of;
}

}  // namespace

double TraceEvents::time(Nanoseconds at) const {
  return static_cast<double>(at - (process_.clock ? process_.clock->offset : 0) - process_.base) / 1000.0;
}

int TraceEvents::pid_of(int group) const { return group == kProcess ? process_.pid : kFirstSlot + group; }

TraceEvents::Row TraceEvents::named_row(int group, int tid, const std::string& name) {
  rows_.emplace(std::pair(group, tid), name);
  return {group, tid};
}

TraceEvents::Row TraceEvents::loop_row() { return named_row(kProcess, process_.pid, "training loop"); }

void TraceEvents::add_bar(const char* category, const std::string& name, const Bar& bar, TraceEvent args) {
  events_.push_back({{"ph", "X"},
                     {"cat", category},
                     {"name", name},
                     {"pid", pid_of(bar.row.group)},
                     {"tid", bar.row.tid},
                     {"ts", time(bar.begin)},
                     {"dur", static_cast<double>(bar.end - bar.begin) / 1000.0},
                     {"args", std::move(args)}});
}

void TraceEvents::add(const TracedStep& step) {
  stage_groups_.clear();
  done_.clear();
  begun_.clear();
  add_step_mark(step.spans);
  for (const StepSpans::Slot& slot : step.spans.slots) add_slot(step, slot);
  add_buckets(step.spans);
  add_flows();
  add_counters(step);
  outside_.insert(outside_.end(), step.outside.begin(), step.outside.end());
}

void TraceEvents::add_step_mark(const StepSpans& spans) {
  const std::string part = process_.part.empty() ? "" : concat(" (", process_.part, ")");
  groups_[kProcess] = concat("process of rank ", process_.rank, part, " on ", process_.host);
  const Row row = loop_row();
  TraceEvent args{{"step", spans.step}};
  if (spans.dropped > 0) args["spans_dropped"] = spans.dropped;
  marks_.push_back({row, spans.begin, spans.end});
  add_bar("user_annotation", concat("ProfilerStep#", spans.step), marks_.back(), std::move(args));
  for (const Span& span : spans.process)
    add_bar("user_annotation", name_of(span), {row, span.begin, span.end}, {{"phase", phase_word(span.phase)}});
}

void TraceEvents::add_slot(const TracedStep& step, const StepSpans::Slot& slot) {
  const auto device = step.devices.find({slot.replica, slot.device});
  Slot key{slot.replica, slot.device,
           device != step.devices.end() ? device->second : concat("device ", index(slot.device))};
  const std::vector<StepSpans::Turn>& turns = step.spans.turns;
  if (turns.empty()) {
    const int group = group_of(key);
    for (const StageId stage : slot.stages) stage_groups_.try_emplace(stage, group);
  }
  for (const Span& span : slot.spans) {
    const int turn = turn_at(step.spans, span.begin);
    key.worker = turn >= 0 ? turns[turn].worker : -1;
    add_span(slot, group_of(key), span, step.spans, turn);
  }
}

int TraceEvents::group_of(const Slot& slot) {
  const int group = slots_.emplace(slot, 1 + static_cast<int>(slots_.size())).first->second;
  groups_.try_emplace(group, concat("rank ", process_.rank, slot.worker >= 0 ? concat(" worker ", slot.worker) : "",
                                    " replica ", index(slot.replica), ": ", slot.name));
  return group;
}

void TraceEvents::add_span(const StepSpans::Slot& slot, int group, const Span& span, const StepSpans& spans, int turn) {
  const Kind kind = kind_of(span.phase);
  const bool has_stage = std::ranges::find(slot.stages, span.stage) != slot.stages.end();
  const bool has_micro_batch = index(span.micro_batch) >= 0;
  // Work of no particular stage shares the first stage's row, because it is the same thread.
  const StageId of = has_stage || slot.stages.empty() ? span.stage : slot.stages.front();
  const Row row = row_of(group, of, span);
  const Bar bar{row, span.begin, span.end};
  TraceEvent args{{"phase", phase_word(span.phase)}, {"step", spans.step}, {"replica", index(slot.replica)}};
  if (turn >= 0) args["worker"] = spans.turns[turn].worker;
  if (span.is_beside) args["beside"] = true;
  if (has_stage) args["stage"] = index(span.stage);
  if (has_micro_batch) args["micro_batch"] = index(span.micro_batch);
  // HolisticTraceAnalysis rounds to microseconds, so a shorter bar would end before it begins.
  if (kind == Kind::kWait || span.end - span.begin < kShortest) {
    add_bar("user_annotation", name_of(span), bar, std::move(args));
  } else {
    add_work(kind == Kind::kCopy ? "gpu_memcpy" : "kernel", name_of(span), bar, std::move(args));
  }
  if (has_stage && has_micro_batch) remember({slot.replica, span.stage, span.micro_batch, turn}, span.phase, bar);
}

void TraceEvents::remember(Work work, Phase phase, const Bar& bar) {
  work.is_forward = phase == Phase::kForward;
  if (!work.is_forward && phase != Phase::kBackward) return;
  begun_.emplace(work, bar);
  done_.insert_or_assign(work, bar);
}

void TraceEvents::add_work(const char* category, const std::string& name, const Bar& bar, TraceEvent args) {
  const int correlation = ++correlations_, group = bar.row.group;
  args.update(
      {{"device", std::max(group - 1, 0)}, {"context", 1}, {"stream", bar.row.tid}, {"correlation", correlation}});
  add_bar(category, name, bar, std::move(args));
  const Row host = named_row(kProcess, process_.pid + kFirstCalls + group, concat("calls for ", groups_[group]));
  // Sums and other concurrent work overlap, but the calls that begin them do not.
  const bool is_sum = bar.row.tid >= kSums;
  add_bar("cuda_runtime", concat("launch ", name), {host, bar.begin, is_sum ? bar.begin : bar.end},
          {{"correlation", correlation}});
}

// Overlapping bars need separate rows, because bars of one row must nest.
int TraceEvents::lane_of(std::vector<Nanoseconds>& lanes, Nanoseconds begin, Nanoseconds end) {
  auto lane = std::ranges::find_if(lanes, [&](Nanoseconds until) { return until <= begin; });
  if (lane == lanes.end() && lanes.size() < kLanes) lane = lanes.insert(lane, 0);
  if (lane == lanes.end()) lane = std::ranges::min_element(lanes);
  *lane = std::max(*lane, end);
  return static_cast<int>(lane - lanes.begin());
}

TraceEvents::Row TraceEvents::row_of(int group, StageId stage, const Span& span) {
  const Kind kind = kind_of(span.phase);
  const int number = std::max(index(stage), 0);
  if (!span.is_beside) return named_row(group, first_row(kind) + number, row_name(kind, stage));
  const int lane = lane_of(besides_[{group, stage}], span.begin, span.end);
  return named_row(group, kBesides + number * kLanes + lane, concat(row_name(Kind::kCompute, stage), " beside"));
}

TraceEvents::Row TraceEvents::bucket_row(const BucketSpan& bucket) {
  const auto found = stage_groups_.find(bucket.stage);
  const int group = found != stage_groups_.end() ? found->second : kProcess;
  const int lane = lane_of(lanes_[{group, bucket.stage}], bucket.begin, bucket.end);
  const int tid = kSums + index(bucket.stage) * kLanes + lane;
  return named_row(group, group == kProcess ? process_.pid + tid : tid,
                   concat("stage ", index(bucket.stage), " all-reduce"));
}

void TraceEvents::add_buckets(const StepSpans& spans) {
  for (const BucketSpan& bucket : spans.buckets) {
    const Row row = bucket_row(bucket);
    TraceEvent args{
        {"phase", "all_reduce"}, {"step", spans.step}, {"stage", index(bucket.stage)}, {"bucket", bucket.bucket}};
    if (bucket.bytes > 0) args["bytes"] = bucket.bytes;
    if (process_.knows_waits) args["waited_us"] = static_cast<double>(bucket.all_there - bucket.begin) / 1000.0;
    add_work(
        "kernel",
        concat("ncclKernel AllReduce (", process_.backend, ") stage ", index(bucket.stage), " bucket ", bucket.bucket),
        {row, bucket.begin, bucket.end}, std::move(args));
  }
}

void TraceEvents::add_flow_end(const char* phase, const std::string& name, const Row& row, Nanoseconds at) {
  TraceEvent event{{"ph", phase},    {"cat", "pipeline"},        {"name", name},  {"id", flows_},
                   {"tid", row.tid}, {"pid", pid_of(row.group)}, {"ts", time(at)}};
  if (*phase == 'f') event["bp"] = "e";
  events_.push_back(std::move(event));
}

// Adds arrows from the end of a stage's work on a micro-batch to the begin of the next stage's.
void TraceEvents::add_flows() {
  for (const auto& [work, bar] : begun_) {
    Work before = work;
    before.stage = StageId{index(work.stage) + (work.is_forward ? -1 : 1)};
    const auto source = done_.find(before);
    if (source == done_.end()) continue;
    ++flows_;
    const std::string name = concat(work.is_forward ? "activation mb " : "gradient mb ", index(work.micro_batch));
    const Bar& from = source->second;
    add_flow_end("s", name, from.row, std::max(from.begin, from.end - 1));
    add_flow_end("f", name, bar.row, bar.begin);
  }
}

void TraceEvents::add_counters(const TracedStep& step) {
  for (const auto& [name, value] : step.counters) {
    events_.push_back({{"ph", "C"},
                       {"cat", "counter"},
                       {"name", name},
                       {"pid", process_.pid},
                       {"tid", 0},
                       {"ts", time(step.spans.end)},
                       {"args", {{"value", value}}}});
  }
}

// A server's steps overlap its loop's other work; bars that overlap without nesting need two rows.
void TraceEvents::add_outside() {
  for (const Span& span : outside_) {
    const bool is_beside =
        std::ranges::any_of(marks_, [&](const Bar& mark) { return mark.begin < span.end && span.begin < mark.end; });
    const Row row =
        is_beside ? named_row(kProcess, process_.pid + kBeside, "training loop, beside the steps") : loop_row();
    add_bar("user_annotation", name_of(span), {row, span.begin, span.end}, {{"phase", phase_word(span.phase)}});
  }
}

std::vector<TraceEvent> TraceEvents::take() {
  add_outside();
  std::vector<TraceEvent> all;
  const auto name = [&](const char* what, int group, int tid, TraceEvent args) {
    all.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", pid_of(group)}, {"tid", tid}, {"ts", 0}, {"args", std::move(args)}});
  };
  for (const auto& [group, text] : groups_) {
    name("process_name", group, 0, {{"name", text}});
    name("process_labels", group, 0, {{"labels", group == kProcess ? "CPU" : "device"}});
    name("process_sort_index", group, 0, {{"sort_index", group}});
  }
  for (const auto& [row, text] : rows_) {
    name("thread_name", row.first, row.second, {{"name", text}});
    name("thread_sort_index", row.first, row.second, {{"sort_index", row.second}});
  }
  std::ranges::move(events_, std::back_inserter(all));
  events_.clear();
  return all;
}

}  // namespace sluice::profiler
