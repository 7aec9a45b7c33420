// pull_compressor: compresses the weights that a worker pulls, by sending only their changes. The server keeps a
// shadow, the weights that the worker has, and sends the packed difference. Both add it to their copy with the same
// function, so the copies agree bit for bit. What packing loses is part of the next difference. The first message of an
// incarnation, or after one that may be lost, carries the whole weights. Requires that workers push gradients or
// deltas. Memory: one copy of the weights per worker on the server, and one on the worker. Threads: one at a time.
// Errors: ConfigError, see check_compression().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/compression.h"
#include "ps/random_number.h"

namespace sluice::ps {

struct PackedWeights {
  std::int64_t sequence = 0;  // counts the messages of one compressor; at least 1
  bool is_whole = false;      // the weights themselves, not their changes since the previous message
  Packed packed;              // views of the weights if is_whole
};

// Counts messages from a random number, so that a worker cannot apply a restarted server's changes to earlier weights.
class PullCompressor {
 public:
  PullCompressor(const Compression& compression, const Layout& layout);

  [[nodiscard]] PackedWeights compress(const Tensors& weights);
  // The worker may lack the last message, so the next one is whole.
  void restart() { shadow_.clear(); }
  [[nodiscard]] const std::vector<at::Tensor>& shadow() const { return shadow_; }  // empty: the next message is whole

 private:
  [[nodiscard]] std::optional<std::vector<at::Tensor>> changes_to(const Tensors& weights);

  Compression compression_;
  std::int64_t sequence_ = random_number();
  std::vector<at::Tensor> shadow_;  // [shard]
};

class PullDecoder {
 public:
  PullDecoder(const Compression& compression, TensorsShape shape);

  // Whether a message follows the previous one. If not, one was lost: ask the server for a whole one.
  [[nodiscard]] bool follows(const PackedWeights& message) const;
  // Returns the read-only weights; nothing, without any change, if the message does not fit. Requires follows().
  [[nodiscard]] std::optional<Tensors> take(const PackedWeights& message);
  void forget() { weights_.clear(); }

 private:
  Compression compression_;
  TensorsShape shape_;
  std::int64_t sequence_ = 0;
  std::vector<at::Tensor> weights_;  // [shard]; never modified in place
};

}  // namespace sluice::ps
