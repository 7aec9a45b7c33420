// replay_messages: which recorded wait of a stage is for which recorded send of another one, by the order in which a
// stage sends and receives for a micro-batch: first what goes forward, then what comes back. Internal to step_replay.
// Pure. Errors: DataError for a wait for something that nobody has sent.
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
