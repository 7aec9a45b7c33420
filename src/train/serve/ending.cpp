#include "train/serve/ending.h"

#include "core/log.h"
#include "core/text.h"

namespace sluice::train {

ps::Over ending_of(const Error& error) { return {static_cast<std::int64_t>(error.exit_code()), error.what()}; }

Error it_was_stopped() { return InterruptedError("it was stopped"); }
Error it_has_failed() { return PeerError("it has failed; see its log"); }

void log_malformed(std::int64_t messages) {
  if (messages > 0) log_warning(counted(messages, "message"), " were not valid messages of Sluice and were dropped");
}

}  // namespace sluice::train
