// layout: how a model's parameters and running statistics lie in what workers push and pull: parameters in the shards
// of ps/policy/shard_plan.h, statistics in one flat tensor. By global names, in the order of the model, so that workers
// may cut the model into stages as they like. A value.
// Errors: ConfigError where a worker's model is another.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ps/policy/shard_plan.h"

namespace sluice::ps {

using NamedSize = std::pair<std::string, std::int64_t>;  // elements

struct Parameter {
  std::string name;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // in which order its elements travel: without gaps

  [[nodiscard]] std::int64_t elements() const;
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

struct LayoutOptions {
  int shards = 1;
  std::int64_t split_bound = 1'000'000;  // elements of a parameter that stay together
  at::ScalarType dtype = at::kFloat;
};

struct Layout {
  at::ScalarType dtype = at::kFloat;  // of all that travels
  std::vector<Parameter> parameters;  // trained, without the copies of tied ones
  std::vector<NamedSize> statistics;
  std::vector<Shard> shards;

  [[nodiscard]] std::int64_t statistics_elements() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// The shards from begin to end of a layout: those that one of several servers keeps.
struct ShardRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// Each server has as many as the others; the first one, with the first of them, has the statistics too.
[[nodiscard]] ShardRange shards_of_server(const Layout& layout, int server, int servers);

// Whether one that comes from elsewhere can be: sizes of memory that there may be, and every element in one place.
[[nodiscard]] bool is_sound(const Layout& layout);

[[nodiscard]] Layout make_layout(std::vector<Parameter> parameters, std::vector<NamedSize> statistics,
                                 const LayoutOptions& options);

// What travels in both directions: a gradient, weights or what they have moved, with the layout above. 1-d, on the CPU.
struct Tensors {
  std::vector<at::Tensor> shards;
  at::Tensor statistics;

  [[nodiscard]] Tensors clone() const;
  void copy_from(const Tensors& other);  // of the same layout
  [[nodiscard]] std::int64_t bytes() const;
};

[[nodiscard]] std::vector<at::Tensor> part_of(const std::vector<at::Tensor>& shards, const ShardRange& range);

// What Tensors of some of a layout's shards have to be.
struct TensorsShape {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shards;  // elements
  std::int64_t statistics = 0;

  [[nodiscard]] bool fits(const Tensors& tensors) const;
};

[[nodiscard]] TensorsShape shape_of(const Layout& layout, const ShardRange& range);
[[nodiscard]] TensorsShape shape_of(const Layout& layout);  // of all shards

// [parameter]: flat values as shards of a layout, and back.
[[nodiscard]] std::vector<at::Tensor> to_shards(const Layout& layout, const std::vector<at::Tensor>& values);
[[nodiscard]] std::vector<at::Tensor> from_shards(const Layout& layout, const std::vector<at::Tensor>& shards);

// A parameter's flat values in its shape; a view.
[[nodiscard]] at::Tensor in_shape(const Parameter& parameter, const at::Tensor& flat);

}  // namespace sluice::ps
