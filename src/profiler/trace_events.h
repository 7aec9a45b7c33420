// trace_events: the events of a trace file (trace.h), step by step. Internal to the room.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/trace.h"

namespace sluice::profiler {

using TraceEvent = nlohmann::ordered_json;

class TraceEvents {
 public:
  explicit TraceEvents(const TraceProcess& process) : process_(process) {}

  void add(const TracedStep& step);
  // The names of all rows that have something, then what was added. Once.
  [[nodiscard]] std::vector<TraceEvent> take();

 private:
  // Where a bar is drawn: of a device or of the process; a row of it. Readers call them process and thread.
  struct Row {
    int pid = 0;
    int tid = 0;
  };
  struct Bar {
    Row row;
    Nanoseconds begin = 0, end = 0;
  };
  // What a stage does with a micro-batch, which the other stages' work on it waits for.
  struct Work {
    ReplicaId replica;
    StageId stage;
    MicroBatchId micro_batch;
    bool is_forward = false;
    auto operator<=>(const Work&) const = default;
  };

  void add_step_mark(const StepSpans& spans);
  void add_place(const TracedStep& step, const StepSpans::Place& place);
  void add_span(const StepSpans::Place& place, int pid, const Span& span, std::int64_t step);
  void remember(Work work, Phase phase, const Bar& bar);
  void add_work(const char* category, const std::string& name, const Bar& bar, TraceEvent args);
  void add_buckets(const StepSpans& spans);
  void add_flows();
  void add_counters(const TracedStep& step);

  [[nodiscard]] Row named_row(int pid, int tid, const std::string& name);
  [[nodiscard]] Row bucket_row(const BucketSpan& bucket);
  [[nodiscard]] double time(Nanoseconds at) const;  // in the file
  void add_bar(const char* category, const std::string& name, const Bar& bar, TraceEvent args);
  void add_flow_end(const char* phase, const std::string& name, const Row& row, Nanoseconds at);

  const TraceProcess& process_;
  std::map<std::pair<ReplicaId, DeviceId>, int> places_;               // their pids
  std::map<int, std::string> pids_;                                    // and names
  std::map<std::pair<int, int>, std::string> rows_;                    // by pid and tid
  std::map<std::pair<int, StageId>, std::vector<Nanoseconds>> lanes_;  // of sums: until when each row is taken
  std::map<StageId, int> stage_pids_;                                  // of the step: replica 0's place of each stage
  std::map<Work, Bar> done_, begun_;                                   // of the step
  std::vector<TraceEvent> events_;
  int correlations_ = 0;
  int flows_ = 0;
};

}  // namespace sluice::profiler
