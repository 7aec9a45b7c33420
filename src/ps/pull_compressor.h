// pull_compressor: weights for a worker, of which only what they have changed by is sent. The server remembers what the
// worker has, its shadow, and sends the difference, packed; both add to what they have what was sent, by the same
// function, so shadow and worker agree bit for bit, and what packing has lost is in the next difference. The first
// message of a worker's incarnation is the weights themselves, as is each one after a message that may be lost.
// Sound only where workers push gradients or deltas: weights would bring back what they had not been sent.
// Memory: the server has a copy of the weights for each worker, a worker one.
// Not here: who is told when a message is lost (net/network_server.h). Threads: one at a time. Errors: ConfigError as
// check_compression().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/compression.h"
#include "ps/random_number.h"

namespace sluice::ps {

struct PackedWeights {
  std::int64_t sequence = 0;  // of the messages of one compressor, whole or not; at least 1
  bool is_whole = false;      // the weights; else what they have changed by since the message before
  Packed packed;              // views of the weights where it is whole
};

// On the server, one for each incarnation of a worker. It counts its messages from a random number: a server that was
// started again has another one for the same incarnation, and the worker must not take its changes for those of the
// first.
class PullCompressor {
 public:
  PullCompressor(const Compression& compression, const Layout& layout);

  [[nodiscard]] PackedWeights compress(const Tensors& weights);
  // The worker may not have what was sent last: the next message is whole.
  void restart() { shadow_.clear(); }
  [[nodiscard]] const std::vector<at::Tensor>& shadow() const { return shadow_; }  // empty: the next one is whole

 private:
  [[nodiscard]] std::optional<std::vector<at::Tensor>> changes_to(const Tensors& weights);

  Compression compression_;
  std::int64_t sequence_ = random_number();
  std::vector<at::Tensor> shadow_;  // [shard]
};

// On the worker.
class PullDecoder {
 public:
  PullDecoder(const Compression& compression, TensorsShape shape);

  // Whether a message follows the one before. If not, one was lost, and the server is to be asked for a whole one.
  [[nodiscard]] bool follows(const PackedWeights& message) const;
  // The weights; not to be written. Nothing, and nothing changes: it is no message for this layout. Requires: follows.
  [[nodiscard]] std::optional<Tensors> take(const PackedWeights& message);
  // Another incarnation begins: with a whole message.
  void forget() { weights_.clear(); }

 private:
  Compression compression_;
  TensorsShape shape_;
  std::int64_t sequence_ = 0;
  std::vector<at::Tensor> weights_;  // [shard]; not written any more
};

}  // namespace sluice::ps
