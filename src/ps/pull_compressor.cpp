#include "ps/pull_compressor.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {

PullCompressor::PullCompressor(const Compression& compression, const Layout& layout) : compression_(compression) {
  check_compression(compression_, layout);
}

PackedWeights PullCompressor::compress(const Tensors& weights) {
  const at::NoGradGuard no_grad;
  PackedWeights message{.sequence = sequence_++, .packed = {.statistics = weights.statistics}};
  if (auto changes = changes_to(weights)) {
    message.packed.shards = std::move(*changes);
    return message;
  }
  message.is_whole = true;
  shadow_.clear();
  for (const at::Tensor& shard : weights.shards) {
    message.packed.shards.push_back(pack({}, shard));
    if (compression_.loses()) shadow_.push_back(shard.clone());
  }
  return message;
}

// Returns nothing if the whole weights must be sent: there is no shadow, or a change is not finite.
std::optional<std::vector<at::Tensor>> PullCompressor::changes_to(const Tensors& weights) {
  if (shadow_.empty()) return std::nullopt;
  std::vector<at::Tensor> changes;
  for (std::size_t s = 0; s < weights.shards.size(); ++s) {
    const at::Tensor change = weights.shards[s] - shadow_[s];
    if (!optim::is_finite(change)) return std::nullopt;
    add_packed(compression_, changes.emplace_back(pack(compression_, change)), shadow_[s]);
  }
  return changes;
}

PullDecoder::PullDecoder(const Compression& compression, TensorsShape shape)
    : compression_(compression), shape_(std::move(shape)) {}

bool PullDecoder::follows(const PackedWeights& message) const {
  if (message.sequence < 1) return false;
  return message.is_whole || (!weights_.empty() && message.sequence - 1 == sequence_);
}

std::optional<Tensors> PullDecoder::take(const PackedWeights& message) {
  check(follows(message), "weights that follow the previous message");
  const at::NoGradGuard no_grad;
  std::optional<Tensors> weights;
  if (message.is_whole) {
    weights = unpack({}, shape_, message.packed);
    if (weights && compression_.loses())
      for (at::Tensor& shard : weights->shards) shard = shard.clone();  // another object owns the message's memory
  } else if (is_packed(compression_, shape_, message.packed)) {
    weights = Tensors{.statistics = message.packed.statistics};
    for (std::size_t s = 0; s < weights_.size(); ++s)
      add_packed(compression_, message.packed.shards[s], weights->shards.emplace_back(weights_[s].clone()));
  }
  if (!weights) return std::nullopt;
  sequence_ = message.sequence;
  if (compression_.loses()) weights_ = weights->shards;
  return weights;
}

}  // namespace sluice::ps
