#include "pipeline/stream_spans.h"

namespace sluice::pipeline {

StreamSpans::StreamSpans(Track* track, const device::Stream& stream, ActionMarks* marks)
    : track_(track), stream_(stream), marks_(track != nullptr ? marks : nullptr) {
  if (track_ == nullptr) return;
  base_ = stream_.moment();
  base_time_ = now_ns();
}

void StreamSpans::add(Pending pending) {
  if (pending.begin.is_known() && pending.end.is_known()) {
    track_->add(pending.span);
  } else {
    pending_.push_back(std::move(pending));
  }
}

void StreamSpans::drop() { track_->ring().drop(); }

void StreamSpans::settle() {
  for (Pending& pending : pending_) {
    pending.span.begin = pending.begin.time(base_, base_time_);
    pending.span.end = pending.end.time(base_, base_time_);
    track_->add(pending.span);
  }
  pending_.clear();
}

void StreamSpanScope::open() {
  if (spans_.marks() != nullptr) spans_.marks()->enter({phase_, spans_.replica(), stage_, micro_batch_});
  begin_ = spans_.stream().moment();
  host_begin_ = begin_.is_known() ? begin_.known_time() : now_ns();
}

// Must not throw: a failed GPU refuses events too, and the original error must be reported.
void StreamSpanScope::close() noexcept {
  try {
    const device::Moment end = spans_.stream().moment();
    const Nanoseconds host_end = end.is_known() ? end.known_time() : now_ns();
    const Span span{phase_, micro_batch_, host_begin_, host_end, stage_, host_begin_, host_end};
    spans_.add({span, begin_, end});
  } catch (...) {
    spans_.drop();
  }
  if (spans_.marks() != nullptr) spans_.marks()->leave();
}

}  // namespace sluice::pipeline
