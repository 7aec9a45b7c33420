#include "profiler/trace.h"

#include "core/concat.h"
#include "profiler/trace_events.h"

namespace sluice::profiler {
namespace {

std::string dump(const nlohmann::ordered_json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// HolisticTraceAnalysis searches line by line for "rank": followed by white space, and takes the first match.
std::string head_text(const TraceProcess& process, std::uint64_t dropped) {
  nlohmann::ordered_json clock;
  if (process.clock) clock = {{"offset_ns", process.clock->offset}, {"error_ns", process.clock->error}};
  const std::string part = process.part.empty() ? "" : concat(", ", process.part);
  nlohmann::ordered_json head{
      {"schemaVersion", 1},
      {"distributedInfo", {{"backend", process.backend}, {"rank", process.rank}, {"world_size", process.processes}}},
      {"displayTimeUnit", "ms"},
      {"baseTimeNanoseconds", process.base_epoch},
      {"traceName", concat("rank ", process.rank, " of ", process.processes, part)},
      {"deviceProperties", nlohmann::ordered_json::array()},
      {"sluice", {{"host", process.host}, {"clock", clock}, {"spans_dropped", dropped}}}};
  std::string text = dump(head, 1);
  text.resize(text.rfind('}'));  // the object continues
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::uint64_t spans_dropped(std::span<const TracedStep> steps) {
  std::uint64_t dropped = 0;
  for (const TracedStep& step : steps) dropped += step.spans.dropped;
  return dropped;
}

std::string trace_text(const TraceProcess& process, std::span<const TracedStep> steps) {
  TraceEvents events(process);
  for (const TracedStep& step : steps) events.add(step);
  std::string text = concat(head_text(process, spans_dropped(steps)), ",\n \"traceEvents\": [");
  const char* separator = "\n";
  for (const TraceEvent& event : events.take()) {
    text += separator;
    text += dump(event);
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace sluice::profiler
