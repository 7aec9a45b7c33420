// live_bytes: counts the bytes that a stage keeps between the actions of its micro-batches: storages that autograd
// saved (each once), the inputs of the stage (with recomputation, of its layers), and deferred weight gradients.
// Parameters, buffers, targets and the output, which is the next stage's input, do not count. peak_bytes()
// (schedule/memory.h) predicts this count.
// Threads: tensors come and go in the stage's thread and in autograd's; read the counts from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include <ATen/core/Tensor.h>

#include "nn/layer.h"
#include "pipeline/saved_tensors.h"

namespace sluice::pipeline {

using nn::Tensors;

class LiveBytes {
 public:
  using Hold = std::shared_ptr<const void>;  // the tensor counts while this lives

  LiveBytes();

  void leave_out(const at::Tensor& tensor);

  [[nodiscard]] std::uint64_t current() const;
  void end_action();
  [[nodiscard]] std::uint64_t peak() const;

 private:
  friend class MicroBatchLiveBytes;
  // A storage. For one that the stage does not own, also the address of the micro-batch's part of it.
  using Key = std::pair<const void*, const void*>;
  struct Ledger;

  std::shared_ptr<Ledger> ledger_;
};

// The tensors of one micro-batch. Autograd's thread may release its holds after this object is destroyed.
class MicroBatchLiveBytes final : public SavedTensorSink {
 public:
  // Inputs count by their own bytes, because they may be parts of larger tensors that the stage does not own.
  MicroBatchLiveBytes(const LiveBytes& stage, const Tensors& inputs);

  [[nodiscard]] LiveBytes::Hold hold(const at::Tensor& tensor) const;
  void hold_all(const Tensors& tensors, std::vector<LiveBytes::Hold>& holds) const {
    for (const at::Tensor& tensor : tensors) holds.push_back(hold(tensor));
  }
  [[nodiscard]] std::shared_ptr<const void> saved(const at::Tensor& tensor) override { return hold(tensor); }
  void leave_out(const Tensors& tensors);

 private:
  std::shared_ptr<LiveBytes::Ledger> ledger_;
  struct Input {
    const void* data;
    std::uint64_t bytes;
  };
  std::map<const void*, Input> inputs_;  // by storage
  std::set<const void*> left_out_;
};

}  // namespace sluice::pipeline
