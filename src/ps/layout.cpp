#include "ps/layout.h"

#include <functional>
#include <numeric>

#include <ATen/ATen.h>

namespace sluice::ps {

std::int64_t Parameter::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies{});
}

std::int64_t Layout::statistics_elements() const {
  return std::accumulate(statistics.begin(), statistics.end(), std::int64_t{0},
                         [](std::int64_t sum, const NamedSize& one) { return sum + one.second; });
}

Tensors Tensors::clone() const {
  Tensors copy{.statistics = statistics.clone()};
  for (const at::Tensor& shard : shards) copy.shards.push_back(shard.clone());
  return copy;
}

void Tensors::copy_from(const Tensors& other) {
  for (std::size_t s = 0; s < shards.size(); ++s) shards[s].copy_(other.shards[s]);
  statistics.copy_(other.statistics);
}

std::int64_t Tensors::bytes() const {
  return std::accumulate(
      shards.begin(), shards.end(), static_cast<std::int64_t>(statistics.nbytes()),
      [](std::int64_t sum, const at::Tensor& shard) { return sum + static_cast<std::int64_t>(shard.nbytes()); });
}

Layout make_layout(std::vector<Parameter> parameters, std::vector<NamedSize> statistics, const LayoutOptions& options) {
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : parameters) sizes.push_back(parameter.elements());
  return {.dtype = options.dtype,
          .parameters = std::move(parameters),
          .statistics = std::move(statistics),
          .shards = plan_shards(sizes, options.shards, options.split_bound)};
}

std::vector<at::Tensor> to_shards(const Layout& layout, const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> shards;
  for (const Shard& shard : layout.shards) {
    at::Tensor& flat = shards.emplace_back(at::empty({shard.elements}, values.front().options()));
    for (const Piece& piece : shard.pieces)
      flat.narrow(0, piece.offset, piece.elements())
          .copy_(values[piece.parameter].narrow(0, piece.begin, piece.elements()));
  }
  return shards;
}

std::vector<at::Tensor> from_shards(const Layout& layout, const std::vector<at::Tensor>& shards) {
  std::vector<at::Tensor> values;
  for (const Parameter& parameter : layout.parameters)
    values.push_back(at::empty({parameter.elements()}, shards.front().options()));
  for (std::size_t s = 0; s < layout.shards.size(); ++s) {
    for (const Piece& piece : layout.shards[s].pieces)
      values[piece.parameter]
          .narrow(0, piece.begin, piece.elements())
          .copy_(shards[s].narrow(0, piece.offset, piece.elements()));
  }
  return values;
}

at::Tensor in_shape(const Parameter& parameter, const at::Tensor& flat) {
  return flat.as_strided(parameter.sizes, parameter.strides, flat.storage_offset());
}

}  // namespace sluice::ps
