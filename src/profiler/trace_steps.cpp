#include "profiler/trace_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "profiler/phase_names.h"

namespace sluice::profiler {
namespace {

using nlohmann::json;

Nanoseconds in_ns(double microseconds) { return std::llround(microseconds * 1000); }

Nanoseconds begin_of(const json& event) { return in_ns(event.at("ts").get<double>()); }
Nanoseconds end_of(const json& event) { return begin_of(event) + in_ns(event.at("dur").get<double>()); }

int number(const json& args, const char* name) { return args.value(name, -1); }

// "rank 0 replica 1: cpu:2" -> "cpu:2"
std::string device_of(const std::string& row) {
  const std::size_t colon = row.find(": ");
  return colon == std::string::npos ? row : row.substr(colon + 2);
}

class StepGatherer {
 public:
  void take(const json& event) {
    const std::string& ph = event.at("ph").get_ref<const std::string&>();
    if (ph == "M" && event.at("name") == "process_name")
      rows_[event.at("pid").get<std::int64_t>()] = event.at("args").at("name").get<std::string>();
    if (ph != "X" || event.at("cat") == "cuda_runtime") return;
    const json& args = event.at("args");
    if (const auto phase = phase_of(args.value("phase", std::string{}))) return take_span(event, args, *phase);
    if (!args.contains("step")) return;
    StepSpans& step = steps_[args.at("step").get<std::int64_t>()].spans;
    step.begin = begin_of(event);
    step.end = end_of(event);
    step.dropped = args.value("spans_dropped", std::uint64_t{0});
  }

  [[nodiscard]] std::vector<TracedStep> steps() {
    std::vector<TracedStep> steps;
    for (auto& [number, step] : steps_) {
      step.spans.step = number;
      if (step.spans.end > step.spans.begin) steps.push_back(whole(step));
    }
    return steps;
  }

 private:
  struct OfSlot {
    int replica = 0;
    std::vector<Span> spans;
  };
  struct Gathered {
    StepSpans spans;  // without its slots and the process's own spans
    std::map<std::int64_t, OfSlot> slots;
  };

  void take_span(const json& event, const json& args, Phase phase) {
    const Nanoseconds begin = begin_of(event), end = end_of(event);
    const StageId stage{number(args, "stage")};
    const Span span{
        phase, MicroBatchId{number(args, "micro_batch")}, begin, end, stage, begin, end, args.value("beside", false)};
    if (!args.contains("step")) return process_.push_back(span);
    Gathered& step = steps_[args.at("step").get<std::int64_t>()];
    if (args.contains("bucket")) {
      const Nanoseconds waited = in_ns(args.value("waited_us", 0.0));
      step.spans.buckets.push_back(
          {stage, args.at("bucket").get<int>(), begin, begin + waited, end, args.value("bytes", std::int64_t{0})});
      return;
    }
    OfSlot& slot = step.slots[event.at("pid").get<std::int64_t>()];
    slot.replica = args.at("replica").get<int>();
    slot.spans.push_back(span);
  }

  [[nodiscard]] TracedStep whole(Gathered& gathered) const {
    TracedStep step{.spans = std::move(gathered.spans)};
    std::map<int, int> devices;
    for (auto& [pid, slot] : gathered.slots) {
      const ReplicaId replica{slot.replica};
      const DeviceId device{devices[slot.replica]++};
      std::set<StageId> stages;
      for (const Span& span : slot.spans)
        if (index(span.stage) >= 0) stages.insert(span.stage);
      step.spans.slots.push_back({replica, device, {stages.begin(), stages.end()}, std::move(slot.spans)});
      const auto row = rows_.find(pid);
      if (row != rows_.end()) step.devices[{replica, device}] = device_of(row->second);
    }
    for (const Span& span : process_)
      if (step.spans.begin <= span.begin && span.end <= step.spans.end) step.spans.process.push_back(span);
    return step;
  }

  std::map<std::int64_t, Gathered> steps_;
  std::map<std::int64_t, std::string> rows_;
  std::vector<Span> process_;
};

}  // namespace

TraceOfProcess read_trace_steps(std::istream& in, const std::string& file) {
  StepGatherer gatherer;
  // Each event is handled and dropped while parsing, so that memory does not grow with the file.
  const auto take = [&](int depth, json::parse_event_t what, json& value) {
    constexpr int kEvent = 2;
    if (what != json::parse_event_t::object_end || depth != kEvent || !value.contains("ph")) return true;
    gatherer.take(value);
    return false;
  };
  try {
    const json head = json::parse(in, take);
    const json& ranks = head.at("distributedInfo");
    return {.rank = ranks.at("rank").get<int>(),
            .processes = ranks.at("world_size").get<int>(),
            .has_own_clock = head.at("sluice").at("clock").is_null(),
            .base_epoch = head.at("baseTimeNanoseconds").get<Nanoseconds>(),
            .steps = gatherer.steps()};
  } catch (const json::parse_error&) {
    throw DataError(file, " is damaged or was cut; record or copy the trace again");
  } catch (const json::exception&) {
    throw DataError(file, " is not a trace that `sluice train --trace` or `sluice profile --trace` wrote");
  }
}

}  // namespace sluice::profiler
