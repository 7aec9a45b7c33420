// recorder: spans of time, one list per thread of work, read between steps.
// Not here: what the spans add up to (profiler/breakdown.h); CUDA activity (profiler, later).
// Threads: a Track belongs to one thread while a step runs; tracks() and clear() only between steps, with a
// happens-before edge to the owners (the executor's step barrier gives it). No locks, no allocation once warm.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"

namespace sluice {

enum class Phase : std::uint8_t { kLoad, kForward, kBackward, kTransfer, kAllReduce, kOptimizer };

struct Span {
  Phase phase;
  MicroBatchId micro_batch;  // 0 where a phase has none
  Nanoseconds begin;
  Nanoseconds end;
};

// The spans of one (replica, stage) in one step.
class Track {
 public:
  Track(ReplicaId replica, StageId stage) : replica_(replica), stage_(stage) {}

  void add(const Span& span) { spans_.push_back(span); }
  void clear() { spans_.clear(); }
  [[nodiscard]] ReplicaId replica() const { return replica_; }
  [[nodiscard]] StageId stage() const { return stage_; }
  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }

 private:
  ReplicaId replica_;
  StageId stage_;
  std::vector<Span> spans_;
};

class Recorder {
 public:
  // The returned track lives as long as the recorder. Not while a step runs.
  Track& add_track(ReplicaId replica, StageId stage) { return tracks_.emplace_back(replica, stage); }
  [[nodiscard]] const std::deque<Track>& tracks() const { return tracks_; }
  void clear();

 private:
  std::deque<Track> tracks_;
};

// Records the life of the object as one span. A null track costs one branch.
class SpanScope {
 public:
  SpanScope(Track* track, Phase phase, MicroBatchId micro_batch = {})
      : track_(track), phase_(phase), micro_batch_(micro_batch), begin_(track != nullptr ? now_ns() : 0) {}
  ~SpanScope() {
    if (track_ != nullptr) track_->add({phase_, micro_batch_, begin_, now_ns()});
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  Track* track_;
  Phase phase_;
  MicroBatchId micro_batch_;
  Nanoseconds begin_;
};

}  // namespace sluice
