#include "profiler/phase_names.h"

namespace sluice::profiler {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kLoadWait: return "load";
    case Phase::kHostToDevice: return "host to device";
    case Phase::kForward: return "forward";
    case Phase::kLoss: return "loss";
    case Phase::kBackward: return "backward";
    case Phase::kWeightGradient: return "weight gradient";
    case Phase::kSend: return "send";
    case Phase::kReceiveWait: return "receive wait";
    case Phase::kReceive: return "receive";
    case Phase::kAllReduce: return "all-reduce";
    case Phase::kOptimizer: return "optimizer";
    case Phase::kEvaluation: return "evaluation";
    case Phase::kCheckpoint: return "checkpoint";
  }
  return "";
}

}  // namespace sluice::profiler
