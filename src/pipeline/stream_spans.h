// stream_spans: records what a slot does as spans of its stream's time: on a CPU device when the calls run, on a GPU
// when the work that they queue runs, by events that are read after the pass. Nothing synchronises meanwhile. Each span
// keeps the host's interval too, and who profiles the GPU is told of it while it lasts (core/action_marks.h).
// Threads: the slot's own, or an autograd thread that works for it while it waits.
#pragma once

#include <vector>

#include "core/action_marks.h"
#include "core/recorder.h"
#include "device/stream.h"

namespace sluice::pipeline {

class StreamSpans {
 public:
  // track: null when nothing is recorded. marks: null when nobody is to be told. The stream is idle.
  StreamSpans(Track* track, const device::Stream& stream, ActionMarks* marks = nullptr);

  [[nodiscard]] bool is_on() const { return track_ != nullptr; }
  [[nodiscard]] const device::Stream& stream() const { return stream_; }
  [[nodiscard]] ActionMarks* marks() const { return marks_; }  // null, too, while nothing is recorded
  [[nodiscard]] ReplicaId replica() const { return track_->replica(); }

  // A span whose times are those of two moments.
  struct Pending {
    Span span;
    device::Moment begin, end;
  };
  void add(Pending pending);
  void drop();  // counts a span whose end cannot be told
  // Hands over the spans whose times were not known yet. The stream is idle again.
  void settle();

 private:
  Track* track_;
  const device::Stream& stream_;
  ActionMarks* marks_;
  device::Moment base_;
  Nanoseconds base_time_ = 0;
  std::vector<Pending> pending_;
};

// Records the work that is done or queued during its life.
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
