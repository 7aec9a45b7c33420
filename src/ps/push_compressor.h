// push_compressor: compresses a worker's pushes with error feedback. What packing loses is the residual, which is added
// to the next push:
//   what was pushed + the residual = what was accumulated,
// up to one rounding per element and push. float64 values beyond the largest bf16 are rounded once more. If a push
// turns out not to count, because its samples went to others, undo() restores the earlier residual. Only sums can be
// compressed: gradients and deltas. A push without targets carries no residual. Memory: the residual, and during a push
// the tensors that it was made of. Threads: one at a time. Errors: ConfigError; CheckpointError for another model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/compression.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

class PushCompressor {
 public:
  using Named = std::map<std::string, at::Tensor>;  // same as storage::TensorMap

  PushCompressor(const Compression& compression, const Layout& layout);

  // Returns what is sent. Takes ownership of `tensors`. Requires that the previous push was kept or undone.
  [[nodiscard]] Packed compress(const PushRecord& record, Tensors tensors);
  // keep(): the push was committed. undo(): it does not count. Both require is_open().
  void keep();
  void undo();
  [[nodiscard]] bool is_open() const { return is_open_; }

  // Residuals by parameter and in its shape. An open push counts as kept, so nothing counts twice. Empty with kNone.
  [[nodiscard]] Named residuals() const;
  // Continues from the residuals of an earlier compressor. Requires that no push is open.
  void load(const Named& residuals);

 private:
  Compression compression_;
  Layout layout_;
  std::vector<at::Tensor> residual_;  // [shard]
  std::vector<at::Tensor> next_;      // residual after the open push; empty: unchanged
  bool is_open_ = false;
};

}  // namespace sluice::ps
