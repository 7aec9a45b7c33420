// stream_spans: records what a slot does as spans in the time of its stream: on a CPU device when the calls run, on a
// GPU when the queued work runs, by events that are read after the pass. Recording does not synchronise. Each span also
// keeps the host's interval, and a GPU profiler is notified of it while it lasts (core/action_marks.h).
// Threads: the slot's own, or an autograd thread that works for it while it waits.
#pragma once

#include <vector>

#include "core/action_marks.h"
#include "core/recorder.h"
#include "device/stream.h"

namespace sluice::pipeline {

class StreamSpans {
 public:
  // track: null: no recording. marks: null: no notification. Requires: the stream is idle.
  StreamSpans(Track* track, const device::Stream& stream, ActionMarks* marks = nullptr);

  [[nodiscard]] bool is_on() const { return track_ != nullptr; }
  [[nodiscard]] const device::Stream& stream() const { return stream_; }
  [[nodiscard]] ActionMarks* marks() const { return marks_; }  // null without recording
  [[nodiscard]] ReplicaId replica() const { return track_->replica(); }

  struct Pending {
    Span span;
    device::Moment begin, end;
  };
  void add(Pending pending);
  void drop();  // counts a span whose end is unknown
  // Adds the pending spans to the track. Requires: the stream is idle again.
  void settle();

 private:
  Track* track_;
  const device::Stream& stream_;
  ActionMarks* marks_;
  device::Moment base_;
  Nanoseconds base_time_ = 0;
  std::vector<Pending> pending_;
};

class StreamSpanScope {
 public:
  StreamSpanScope(StreamSpans& spans, Phase phase, StageId stage = kNoStage, MicroBatchId micro_batch = kNoMicroBatch)
      : spans_(spans), phase_(phase), stage_(stage), micro_batch_(micro_batch) {
    if (spans_.is_on()) open();
  }
  ~StreamSpanScope() {
    if (spans_.is_on()) close();
  }
  StreamSpanScope(const StreamSpanScope&) = delete;
  StreamSpanScope& operator=(const StreamSpanScope&) = delete;

 private:
  void open();
  void close() noexcept;

  StreamSpans& spans_;
  Phase phase_;
  StageId stage_;
  MicroBatchId micro_batch_;
  device::Moment begin_;
  Nanoseconds host_begin_ = 0;
};

}  // namespace sluice::pipeline
