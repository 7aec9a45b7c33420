// no_sync: the ReplicaSync of a single replica: there is nobody to agree with.
#pragma once

#include "comm/replica_sync.h"

namespace sluice::comm {

class NoSync final : public ReplicaSync {
 public:
  [[nodiscard]] bool begin_step() override { return false; }
  void on_grad_ready(ReplicaId, ParamId) override {}
  void on_backward_done(ReplicaId, StageId) override {}
  [[nodiscard]] StepOutcome finish_step(const Contribution& local) override { return {.total = local}; }
};

}  // namespace sluice::comm
