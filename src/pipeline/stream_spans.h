// stream_spans: records what a place does as spans of its stream's time: on a CPU device when the calls run, on a GPU
// when the work that they queue runs, by events that are read after the pass. Nothing synchronises meanwhile.
// Threads: the place's own, or an autograd thread that works for it while it waits.
#pragma once

#include <vector>

#include "core/recorder.h"
#include "device/stream.h"

namespace sluice::pipeline {

class StreamSpans {
 public:
  // track: null when nothing is recorded. The stream is idle.
  StreamSpans(Track* track, const device::Stream& stream);

  [[nodiscard]] bool is_on() const { return track_ != nullptr; }
  [[nodiscard]] const device::Stream& stream() const { return stream_; }
  void add(Phase phase, MicroBatchId micro_batch, const device::Moment& begin, const device::Moment& end,
           StageId stage);
  void drop();  // counts a span whose end cannot be told
  // Hands over the spans whose times were not known yet. The stream is idle again.
  void settle();

 private:
  struct Pending {
    Phase phase;
    MicroBatchId micro_batch;
    device::Moment begin, end;
    StageId stage;
  };

  Track* track_;
  const device::Stream& stream_;
  device::Moment base_;
  Nanoseconds base_time_ = 0;
  std::vector<Pending> pending_;
};

// Records the work that is done or queued during its life.
class StreamSpanScope {
 public:
  StreamSpanScope(StreamSpans& spans, Phase phase, StageId stage = kNoStage, MicroBatchId micro_batch = kNoMicroBatch)
      : spans_(spans), phase_(phase), stage_(stage), micro_batch_(micro_batch) {
    if (spans_.is_on()) begin_ = spans_.stream().moment();
  }
  ~StreamSpanScope();
  StreamSpanScope(const StreamSpanScope&) = delete;
  StreamSpanScope& operator=(const StreamSpanScope&) = delete;

 private:
  StreamSpans& spans_;
  Phase phase_;
  StageId stage_;
  MicroBatchId micro_batch_;
  device::Moment begin_;
};

}  // namespace sluice::pipeline
