// layout: how a model's parameters and running statistics are arranged in pushes and pulls. Parameters lie in the
// shards of ps/policy/shard_plan.h, statistics in one flat tensor. Both use global names in the order of the model, so
// workers may partition the model differently. Values. Errors: ConfigError if a worker has another model.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/policy/shard_plan.h"

namespace sluice::ps {

using NamedSize = std::pair<std::string, std::int64_t>;  // name and number of elements

struct Parameter {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // order in which the elements are sent; contiguous

  [[nodiscard]] std::int64_t elements() const;
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

struct LayoutOptions {
  int shards = 1;
  std::int64_t split_bound = 1'000'000;  // a parameter with at most this many elements is not split
  at::ScalarType dtype = at::kFloat;
};

struct Layout {
  at::ScalarType dtype = at::kFloat;  // type of all tensors that are sent
  std::vector<Parameter> parameters;  // trained parameters, without copies of tied ones
  std::vector<NamedSize> statistics;
  std::vector<Shard> shards;

  [[nodiscard]] std::int64_t statistics_elements() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

struct ShardRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// Every server has equally many shards. Server 0 has the first ones and also the statistics.
[[nodiscard]] ShardRange shards_of_server(const Layout& layout, int server, int servers);

// Whether a received layout is valid: possible sizes, and every element in exactly one place.
[[nodiscard]] bool is_sound(const Layout& layout);

[[nodiscard]] Layout make_layout(std::vector<Parameter> parameters, std::vector<NamedSize> statistics,
                                 const LayoutOptions& options);

// A gradient, weights, or a change of weights, arranged by the layout. 1-d, on the CPU.
struct Tensors {
  std::vector<at::Tensor> shards;
  at::Tensor statistics;

  [[nodiscard]] Tensors clone() const;
  void copy_from(const Tensors& other);  // requires the same layout
  [[nodiscard]] std::int64_t bytes() const;
};

[[nodiscard]] std::vector<at::Tensor> part_of(const std::vector<at::Tensor>& shards, const ShardRange& range);

struct TensorsShape {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shards;  // elements
  std::int64_t statistics = 0;

  [[nodiscard]] bool fits(const Tensors& tensors) const;
};

[[nodiscard]] TensorsShape shape_of(const Layout& layout, const ShardRange& range);
[[nodiscard]] TensorsShape shape_of(const Layout& layout);

[[nodiscard]] std::vector<at::Tensor> to_shards(const Layout& layout, const std::vector<at::Tensor>& values);
[[nodiscard]] std::vector<at::Tensor> from_shards(const Layout& layout, const std::vector<at::Tensor>& shards);

// Returns a parameter's flat values in its shape, as a view.
[[nodiscard]] at::Tensor in_shape(const Parameter& parameter, const at::Tensor& flat);

}  // namespace sluice::ps
