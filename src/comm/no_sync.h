// no_sync: the ReplicaSync of a single replica, with nothing to synchronize.
#pragma once

#include "comm/replica_sync.h"

namespace sluice::comm {

class NoSync final : public ReplicaSync {
 public:
  [[nodiscard]] bool begin_step(const StepStart&) override { return false; }
  void on_grad_ready(ReplicaId, ParamId) override {}
  void on_backward_done(ReplicaId, StageId) override {}
  [[nodiscard]] StepOutcome finish_step(const Contribution& local) override { return {.total = local}; }
  [[nodiscard]] int processes() const override { return 1; }
  [[nodiscard]] int rank() const override { return 0; }
  void sum(const at::Tensor&) override {}
  void take_rank_0s(const at::Tensor&) override {}
};

}  // namespace sluice::comm
