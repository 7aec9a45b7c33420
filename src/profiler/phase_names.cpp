#include "profiler/phase_names.h"

namespace sluice::profiler {

const char* phase_word(Phase phase) {
  switch (phase) {
    case Phase::kLoadWait: return "load_wait";
    case Phase::kHostToDevice: return "host_to_device";
    case Phase::kForward: return "forward";
    case Phase::kLoss: return "loss";
    case Phase::kBackward: return "backward";
    case Phase::kWeightGradient: return "weight_gradient";
    case Phase::kSend: return "send";
    case Phase::kReceiveWait: return "receive_wait";
    case Phase::kReceive: return "receive";
    case Phase::kAllReduce: return "all_reduce";
    case Phase::kOptimizer: return "optimizer";
    case Phase::kEvaluation: return "evaluation";
    case Phase::kCheckpoint: return "checkpoint";
  }
  return "other";
}

std::optional<Phase> phase_of(std::string_view word) {
  for (int phase = 0; phase <= static_cast<int>(Phase::kCheckpoint); ++phase)
    if (word == phase_word(static_cast<Phase>(phase))) return static_cast<Phase>(phase);
  return std::nullopt;
}

}  // namespace sluice::profiler
