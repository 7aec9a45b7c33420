#include "core/sum_tree.h"

#include <algorithm>

namespace sluice {

NumberRange leaves_of(const TreeNode& node, std::int64_t leaves) {
  const auto first = [&](std::int64_t index) { return std::min(index << node.level, leaves); };
  return {first(node.index), first(node.index + 1)};
}

std::optional<TreeNode> parent_within(const TreeNode& node, const NumberRange& within, std::int64_t leaves) {
  if (leaves_of(node, leaves).size() == leaves) return std::nullopt;
  const TreeNode parent{node.level + 1, node.index / 2};
  const NumberRange covered = leaves_of(parent, leaves);
  if (covered.begin < within.begin || covered.end > within.end) return std::nullopt;
  return parent;
}

std::vector<TreeNode> nodes_within(const NumberRange& range, std::int64_t leaves) {
  std::vector<TreeNode> nodes;
  for (std::int64_t leaf = range.begin; leaf < range.end; leaf = leaves_of(nodes.back(), leaves).end) {
    TreeNode node{0, leaf};
    while (const auto parent = parent_within(node, range, leaves)) node = *parent;
    nodes.push_back(node);
  }
  return nodes;
}

}  // namespace sluice
