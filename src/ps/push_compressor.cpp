#include "ps/push_compressor.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/error.h"

namespace sluice::ps {

PushCompressor::PushCompressor(const Compression& compression, const Layout& layout)
    : compression_(compression), layout_(layout) {
  check_compression(compression_, layout_);
  if (!compression_.loses()) return;
  for (const Shard& shard : layout_.shards) residual_.push_back(at::zeros({shard.elements}, layout_.dtype));
}

Packed PushCompressor::compress(const PushRecord& record, Tensors tensors) {
  check(!is_open_, "the previous push is kept or undone");
  check(!compression_.loses() || record.payload != Payload::kWeights,
        "gradients or deltas, because weights are mixed and not added up");
  const at::NoGradGuard no_grad;
  is_open_ = true;
  const bool has_residual = compression_.loses() && record.targets > 0;
  Packed packed{.statistics = std::move(tensors.statistics)};
  for (std::size_t s = 0; s < tensors.shards.size(); ++s) {
    at::Tensor& sum = tensors.shards[s];
    if (has_residual) sum.add_(residual_[s]);
    packed.shards.push_back(pack(compression_, sum));
    if (has_residual) add_packed(compression_, packed.shards.back(), sum, -1);
  }
  if (has_residual) next_ = std::move(tensors.shards);
  return packed;
}

void PushCompressor::keep() {
  check(is_open_, "keep() follows compress()");
  if (!next_.empty()) residual_ = std::exchange(next_, {});
  is_open_ = false;
}

void PushCompressor::undo() {
  check(is_open_, "undo() follows compress()");
  next_.clear();
  is_open_ = false;
}

PushCompressor::Named PushCompressor::residuals() const {
  Named named;
  if (residual_.empty()) return named;
  const std::vector<at::Tensor> values = from_shards(layout_, next_.empty() ? residual_ : next_);
  for (std::size_t p = 0; p < values.size(); ++p)
    named[layout_.parameters[p].name] = in_shape(layout_.parameters[p], values[p]);
  return named;
}

void PushCompressor::load(const Named& residuals) {
  check(!is_open_, "no open push while residuals are loaded");
  if (!compression_.loses()) return;
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : layout_.parameters) {
    const auto found = residuals.find(parameter.name);
    const bool fits = found != residuals.end() && found->second.sizes() == c10::IntArrayRef(parameter.sizes) &&
                      found->second.scalar_type() == layout_.dtype;
    if (!fits)
      throw CheckpointError("a worker's saved residuals belong to another model: they lack ", parameter.name, " ",
                            c10::IntArrayRef(parameter.sizes), " of ", c10::toString(layout_.dtype),
                            "; without these residuals the worker starts with none");
    at::Tensor& flat = values.emplace_back(at::empty({parameter.elements()}, layout_.dtype));
    in_shape(parameter, flat).copy_(found->second);
  }
  residual_ = to_shards(layout_, values);
}

}  // namespace sluice::ps
