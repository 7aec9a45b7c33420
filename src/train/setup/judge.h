// judge: scores of an evaluation that need the outputs for all samples, not only sums over micro-batches: answers to
// questions, which have several windows. One object for each evaluation. Threads: one.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include "comm/replica_sync.h"
#include "train/setup/setup.h"

namespace sluice::train {

class Judge {
 public:
  virtual ~Judge() = default;
  // outputs: of these samples of the test set, on the CPU.
  virtual void add(const at::Tensor& sample_ids, const at::Tensor& outputs) = 0;
  // To be appended to ScoreSums::sums; the same in every process. Every process must call it, once.
  [[nodiscard]] virtual std::vector<double> finish(comm::ReplicaSync& sync) = 0;
  // {question id: answer}, after finish().
  [[nodiscard]] virtual const nlohmann::ordered_json& predictions() const = 0;
};

// Null: sums suffice for this task.
[[nodiscard]] std::unique_ptr<Judge> make_judge(const Setup& setup);

}  // namespace sluice::train
