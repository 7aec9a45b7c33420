#include "models/freeze_points.h"

#include <algorithm>
#include <string_view>

namespace sluice::models {
namespace {

// In "vit.encoder.layer.3.mlp": block "vit.encoder.layer.3" of the list "vit.encoder.layer".
struct BlockName {
  std::string_view block, list;  // both empty if no part of the name is a number
};

BlockName block_name(std::string_view layer) {
  for (std::size_t end = layer.size(); end != std::string_view::npos; end = layer.substr(0, end).rfind('.')) {
    const std::string_view block = layer.substr(0, end);
    const std::size_t dot = block.rfind('.');
    if (dot == std::string_view::npos) break;
    const std::string_view number = block.substr(dot + 1);
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos)
      return {block, block.substr(0, dot)};
  }
  return {};
}

// Returns for each layer a name that the layers of its unit share; empty for a layer outside of units.
std::vector<std::string_view> unit_names(std::span<const std::string> layers, FreezeUnit unit) {
  std::vector<std::string_view> names(layers.size());
  const BlockName last = block_name(layers.back());
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    const BlockName name = block_name(layers[i]);
    const bool is_head = !last.list.empty() && name.list == last.list;
    if (!is_head && !name.block.empty()) names[i] = unit == FreezeUnit::kBlock ? name.block : layers[i];
  }
  const bool has_blocks = std::ranges::any_of(names, [](std::string_view name) { return !name.empty(); });
  if (!has_blocks) std::copy(layers.begin(), layers.end() - 1, names.begin());
  return names;
}

}  // namespace

std::vector<int> freeze_points(std::span<const std::string> layers, FreezeUnit unit) {
  std::vector<int> points{0};
  if (layers.empty()) return points;
  const auto names = unit_names(layers, unit);
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    if (!names[i].empty() && names[i] != names[i + 1]) points.push_back(static_cast<int>(i) + 1);
  }
  return points;
}

std::vector<int> freeze_points(const ModelOptions& options, FreezeUnit unit) {
  return freeze_points(layer_names(make_without_values(options)), unit);
}

}  // namespace sluice::models
