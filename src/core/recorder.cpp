#include "core/recorder.h"

#include <utility>

namespace sluice {

void SpanRing::take(std::vector<Span>& into) {
  const std::uint64_t end = written_.load(std::memory_order_acquire);
  for (std::uint64_t at = read_.load(std::memory_order_relaxed); at != end; ++at) {
    into.push_back(slots_[at % slots_.size()]);
  }
  read_.store(end, std::memory_order_release);
}

Track& Recorder::add_track(ReplicaId replica, DeviceId device, std::vector<StageId> stages, StreamName stream) {
  return tracks_.emplace_back(replica, device, std::move(stages), stream);
}

StepSpans Recorder::collect(std::int64_t step, Nanoseconds begin, Nanoseconds end) {
  StepSpans spans{.step = step,
                  .begin = begin,
                  .end = end,
                  .buckets = std::exchange(buckets_, {}),
                  .late = std::exchange(late_, {})};
  if (!is_on_) return spans;
  for (Track& track : tracks_) {
    StepSpans::Slot& slot =
        spans.slots.emplace_back(StepSpans::Slot{track.replica(), track.device(), track.stages(), {}, track.stream()});
    track.ring().take(slot.spans);
    spans.dropped += track.ring().take_dropped();
  }
  process_.ring().take(spans.process);
  spans.dropped += process_.ring().take_dropped();
  return spans;
}

SpanScope::~SpanScope() {
  if (track_ == nullptr) return;
  const Nanoseconds end = now_ns();
  track_->add({phase_, micro_batch_, begin_, end, kNoStage, begin_, end});
}

}  // namespace sluice
