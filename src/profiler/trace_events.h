// trace_events: makes the events of a trace file (trace.h), step by step. Internal to src/profiler.
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
  // The names of all used rows, then the added events. Call once.
  [[nodiscard]] std::vector<TraceEvent> take();

 private:
  // A device of one plan; for workers that take turns on it, one per worker.
  struct Slot {
    ReplicaId replica;
    DeviceId device;
    std::string name;
    int worker = -1;
    auto operator<=>(const Slot&) const = default;
  };
  static constexpr int kProcess = 0;
  // Position of a bar: kProcess or a slot's number, and a row. Readers call these process and thread.
  struct Row {
    int group = kProcess;
    int tid = 0;
  };
  struct Bar {
    Row row;
    Nanoseconds begin = 0, end = 0;
  };
  // A stage's work on a micro-batch; later stages wait for it.
  struct Work {
    ReplicaId replica;
    StageId stage;
    MicroBatchId micro_batch;
    int turn = -1;
    bool is_forward = false;
    auto operator<=>(const Work&) const = default;
  };

  void add_step_mark(const StepSpans& spans);
  void add_slot(const TracedStep& step, const StepSpans::Slot& slot);
  [[nodiscard]] int group_of(const Slot& slot);
  void add_span(const StepSpans::Slot& slot, int group, const Span& span, const StepSpans& spans, int turn);
  void remember(Work work, Phase phase, const Bar& bar);
  void add_work(const char* category, const std::string& name, const Bar& bar, TraceEvent args);
  void add_buckets(const StepSpans& spans);
  void add_flows();
  void add_counters(const TracedStep& step);
  void add_outside();

  [[nodiscard]] int pid_of(int group) const;
  [[nodiscard]] Row named_row(int group, int tid, const std::string& name);
  [[nodiscard]] Row loop_row();
  [[nodiscard]] static int lane_of(std::vector<Nanoseconds>& lanes, Nanoseconds begin, Nanoseconds end);
  [[nodiscard]] Row row_of(int group, StageId stage, const Span& span);
  [[nodiscard]] Row bucket_row(const BucketSpan& bucket);
  [[nodiscard]] double time(Nanoseconds at) const;
  void add_bar(const char* category, const std::string& name, const Bar& bar, TraceEvent args);
  void add_flow_end(const char* phase, const std::string& name, const Row& row, Nanoseconds at);

  const TraceProcess& process_;
  std::map<Slot, int> slots_;
  std::map<int, std::string> groups_;
  std::map<std::pair<int, int>, std::string> rows_;
  // By group and stage: the end of the last bar in each row, for sums and for concurrent work.
  std::map<std::pair<int, StageId>, std::vector<Nanoseconds>> lanes_, besides_;
  std::map<StageId, int> stage_groups_;  // of the step: replica 0's slot of each stage
  std::map<Work, Bar> done_, begun_;
  std::vector<Bar> marks_;
  std::vector<Span> outside_;
  std::vector<TraceEvent> events_;
  int correlations_ = 0;
  int flows_ = 0;
};

}  // namespace sluice::profiler
