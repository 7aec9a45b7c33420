#include "ps/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::ps {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;  // elements of a model; their bytes fit 64 bits

// Returns total * size, or kMostElements + 1 if the product is larger.
std::int64_t times_size(std::int64_t total, std::int64_t size) {
  if (total > kMostElements || (total > 0 && size > kMostElements / total)) return kMostElements + 1;
  return total * size;
}

bool is_sound_parameter(const Parameter& parameter) {
  const bool has_sizes = std::ranges::all_of(parameter.sizes, [](std::int64_t size) { return size >= 0; });
  return has_sizes && parameter.strides.size() == parameter.sizes.size() &&
         std::accumulate(parameter.sizes.begin(), parameter.sizes.end(), std::int64_t{1}, times_size) <= kMostElements;
}

bool is_sound_shard(const Shard& shard, const std::vector<Parameter>& parameters) {
  std::int64_t end = 0;
  for (const Piece& piece : shard.pieces) {
    if (piece.parameter < 0 || piece.parameter >= std::ssize(parameters)) return false;
    if (piece.begin < 0 || piece.end < piece.begin || piece.end > parameters[piece.parameter].elements()) return false;
    if (piece.offset != end || piece.elements() > kMostElements - end) return false;
    end += piece.elements();
  }
  return shard.elements == end;
}

bool has_each_element_once(const Layout& layout) {
  std::vector<Piece> pieces;
  for (const Shard& shard : layout.shards) pieces.insert(pieces.end(), shard.pieces.begin(), shard.pieces.end());
  std::ranges::sort(pieces, {}, [](const Piece& piece) { return std::pair{piece.parameter, piece.begin}; });
  std::vector<std::int64_t> covered(layout.parameters.size());
  for (const Piece& piece : pieces) {
    if (piece.begin != covered[piece.parameter]) return false;
    covered[piece.parameter] = piece.end;
  }
  return std::ranges::equal(covered, layout.parameters, {}, {}, &Parameter::elements);
}

}  // namespace

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

bool is_sound(const Layout& layout) {
  std::int64_t statistics = 0;
  for (const auto& [name, elements] : layout.statistics) {
    if (elements < 0 || elements > kMostElements - statistics) return false;
    statistics += elements;
  }
  return at::isFloatingType(layout.dtype) && std::ranges::all_of(layout.parameters, is_sound_parameter) &&
         std::ranges::all_of(layout.shards,
                             [&](const Shard& shard) { return is_sound_shard(shard, layout.parameters); }) &&
         has_each_element_once(layout);
}

Layout make_layout(std::vector<Parameter> parameters, std::vector<NamedSize> statistics, const LayoutOptions& options) {
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : parameters) sizes.push_back(parameter.elements());
  return {.dtype = options.dtype,
          .parameters = std::move(parameters),
          .statistics = std::move(statistics),
          .shards = plan_shards(sizes, options.shards, options.split_bound)};
}

ShardRange shards_of_server(const Layout& layout, int server, int servers) {
  const std::size_t each = layout.shards.size() / static_cast<std::size_t>(servers);
  check(each >= 1 && each * static_cast<std::size_t>(servers) == layout.shards.size() && server < servers,
        "an equal number of shards on every server, and a server below their number");
  return {each * static_cast<std::size_t>(server), each * static_cast<std::size_t>(server + 1)};
}

std::vector<at::Tensor> part_of(const std::vector<at::Tensor>& shards, const ShardRange& range) {
  return {shards.begin() + static_cast<std::ptrdiff_t>(range.begin),
          shards.begin() + static_cast<std::ptrdiff_t>(range.end)};
}

TensorsShape shape_of(const Layout& layout, const ShardRange& range) {
  TensorsShape shape{.dtype = layout.dtype, .statistics = range.begin == 0 ? layout.statistics_elements() : 0};
  for (std::size_t s = range.begin; s < range.end; ++s) shape.shards.push_back(layout.shards[s].elements);
  return shape;
}

TensorsShape shape_of(const Layout& layout) { return shape_of(layout, {0, layout.shards.size()}); }

bool TensorsShape::fits(const Tensors& tensors) const {
  const auto is_one = [&](const at::Tensor& shard, std::int64_t elements) {
    return shard.numel() == elements && shard.scalar_type() == dtype;
  };
  return std::ranges::equal(tensors.shards, shards, is_one) && tensors.statistics.numel() == statistics;
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
