// push_compressor: what a worker has not sent yet: the residual of its compressed pushes, which is added to the next
// one (error feedback), so that nothing is ever lost:
//   what was pushed + the residual = what was accumulated,
// up to one rounding an element and push, of residual + gradient. What is left of that sum after packing is exact, but
// for float64 beyond the largest bf16, where it is rounded once more.
// A push may turn out to count for nothing, its samples having gone to others: then undo() makes the residual what it
// was before, which is kept until the push is known to be committed. Only sums may be compressed so: gradients and
// deltas. A push of no targets is in no update, so nothing of the residual goes with it. Memory: the residual, and
// while a push is under way the tensors that it was made of. Not here: when a push is committed (network_link.h), files
// (storage/safetensors.h). Threads: one at a time. Errors: ConfigError as check_compression(); CheckpointError for
// residuals of another model.
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
  using Named = std::map<std::string, at::Tensor>;  // as storage::TensorMap

  PushCompressor(const Compression& compression, const Layout& layout);

  // What travels. tensors: the compressor's from now on. Requires: the push before was kept or undone.
  [[nodiscard]] Packed compress(const PushRecord& record, Tensors tensors);
  // The push was committed, or counts for nothing. Requires: is_open().
  void keep();
  void undo();
  // Whether it is not known yet which.
  [[nodiscard]] bool is_open() const { return is_open_; }

  // Of the pushes so far, an open one as if it were kept, so that nothing of it can count twice; by parameter and in
  // its shape, whatever the shards; empty with kNone. Copies.
  [[nodiscard]] Named residuals() const;
  // Goes on from those of an earlier compressor. Requires: not is_open().
  void load(const Named& residuals);

 private:
  Compression compression_;
  Layout layout_;
  std::vector<at::Tensor> residual_;  // [shard]
  std::vector<at::Tensor> next_;      // once the open push is kept; empty: it leaves the residual as it is
  bool is_open_ = false;
};

}  // namespace sluice::ps
