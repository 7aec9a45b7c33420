#include "pipeline/stream_spans.h"

namespace sluice::pipeline {

StreamSpans::StreamSpans(Track* track, const device::Stream& stream) : track_(track), stream_(stream) {
  if (track_ == nullptr) return;
  base_ = stream_.moment();
  base_time_ = now_ns();
}

void StreamSpans::add(Phase phase, MicroBatchId micro_batch, const device::Moment& begin, const device::Moment& end,
                      StageId stage) {
  if (begin.is_known() && end.is_known()) {
    track_->add({phase, micro_batch, begin.known_time(), end.known_time(), stage});
  } else {
    pending_.push_back({phase, micro_batch, begin, end, stage});
  }
}

void StreamSpans::drop() { track_->ring().drop(); }

// A GPU that has failed refuses events too, and the error that brought us here must pass.
StreamSpanScope::~StreamSpanScope() {
  if (!spans_.is_on()) return;
  try {
    spans_.add(phase_, micro_batch_, begin_, spans_.stream().moment(), stage_);
  } catch (...) {
    spans_.drop();
  }
}

void StreamSpans::settle() {
  for (const Pending& span : pending_) {
    track_->add({span.phase, span.micro_batch, span.begin.time(base_, base_time_), span.end.time(base_, base_time_),
                 span.stage});
  }
  pending_.clear();
}

}  // namespace sluice::pipeline
