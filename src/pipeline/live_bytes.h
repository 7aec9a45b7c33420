// live_bytes: what a stage keeps between the actions of its micro-batches, counted from the tensors themselves:
// storages that autograd has saved for backward, each once, the stage's inputs (with recomputation those of its
// layers), and what put-off weight gradients wait with. Parameters and buffers are not among them, nor are the targets.
// It is what a schedule's peak_bytes() (schedule/memory.h) predicts from tune::live_bytes(). Not here: the output on
// its way to the next stage, whose input it is; what an action takes while it runs (device/memory.h has the peak of
// both). Threads: tensors come and go in the stage's thread and in autograd's; the counts from any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>

#include "pipeline/saved_tensors.h"

namespace sluice::pipeline {

class LiveBytes {
 public:
  using Hold = std::shared_ptr<const void>;  // counted while it lives

  LiveBytes();

  // Storages that do not count: those of parameters and buffers.
  void leave_out(const at::Tensor& tensor);

  [[nodiscard]] std::uint64_t current() const;
  // Notes what there is now: the end of an action.
  void end_action();
  [[nodiscard]] std::uint64_t peak() const;  // at the ends of actions

 private:
  friend class MicroBatchLiveBytes;
  // A storage; of one that is not the stage's own, the micro-batch's part of it.
  using Key = std::pair<const void*, const void*>;
  struct Ledger;

  std::shared_ptr<Ledger> ledger_;
};

// The tensors of one micro-batch. Autograd's thread may outlive it.
class MicroBatchLiveBytes final : public SavedTensorSink {
 public:
  // input: counted by its own bytes, as it may be a part of a larger tensor that is not the stage's.
  MicroBatchLiveBytes(const LiveBytes& stage, const at::Tensor& input);

  [[nodiscard]] LiveBytes::Hold hold(const at::Tensor& tensor) const;
  [[nodiscard]] std::shared_ptr<const void> saved(const at::Tensor& tensor) override { return hold(tensor); }
  // Not the stage's: targets.
  void leave_out(const at::Tensor& tensor);

 private:
  std::shared_ptr<LiveBytes::Ledger> ledger_;
  const void* input_storage_;
  const void* input_data_;
  std::uint64_t input_bytes_;
  const void* left_out_ = nullptr;
};

}  // namespace sluice::pipeline
