// replay_messages: matches each recorded wait of a stage with another stage's recorded send. The match uses the order
// of a stage's sends and receives for a micro-batch: forward first, then backward. Internal to step_replay. Pure.
// Errors: DataError for a wait without a send.
#pragma once

#include <vector>

#include "core/recorder.h"

namespace sluice::tune {

struct SpanAt {
  int slot = 0;
  int span = 0;
};
struct RecordedMessage {
  SpanAt sent;
  SpanAt waited;
};

[[nodiscard]] std::vector<RecordedMessage> messages_of(const std::vector<StepSpans::Slot>& slots);

}  // namespace sluice::tune
