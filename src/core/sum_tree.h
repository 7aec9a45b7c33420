// sum_tree: sums whose bits do not depend on who adds up which part. Leaves 0 .. n - 1 stand under a binary tree: node
// (level, index) covers the leaves from index 2^level up to (index + 1) 2^level, as far as they exist. Its sum is the
// sum of its left half plus that of its right half; a half without leaves is left out.
// A range of leaves can be reduced to one sum for each of nodes_within(range): at most 2 log2(n) nodes, and a single
// one for an aligned range of 2^level leaves. The sums of all ranges' nodes complete the sum of the root.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/parts.h"

namespace sluice {

struct TreeNode {
  int level = 0;
  std::int64_t index = 0;

  auto operator<=>(const TreeNode&) const = default;
};

[[nodiscard]] NumberRange leaves_of(const TreeNode& node, std::int64_t leaves);

// The node above, unless `node` covers all leaves or the node above covers some that are not in `within`.
[[nodiscard]] std::optional<TreeNode> parent_within(const TreeNode& node, const NumberRange& within,
                                                    std::int64_t leaves);

// The fewest nodes that cover exactly `range`, in the order of their leaves.
[[nodiscard]] std::vector<TreeNode> nodes_within(const NumberRange& range, std::int64_t leaves);

// Adds up the nodes of a range in any order of arrival. Value: a number, or a handle of one.
template <typename Value>
class TreeSum {
 public:
  TreeSum() = default;
  TreeSum(const NumberRange& within, std::int64_t leaves) : within_(within), leaves_(leaves) {}

  // add(sum, left, right) returns the value of node `sum`. Returns the node that now has the value.
  template <typename Add>
  TreeNode put(TreeNode node, Value value, const Add& add) {
    while (const auto parent = parent_within(node, within_, leaves_)) {
      const TreeNode other{node.level, node.index ^ 1};
      if (leaves_of(other, leaves_).size() > 0) {
        const auto found = kept_.find(other);
        if (found == kept_.end()) break;
        Value with = std::move(found->second);
        kept_.erase(found);
        value = node.index < other.index ? add(*parent, std::move(value), std::move(with))
                                         : add(*parent, std::move(with), std::move(value));
      }
      node = *parent;
    }
    check(kept_.emplace(node, std::move(value)).second, "each leaf is added once");
    return node;
  }

  [[nodiscard]] const std::map<TreeNode, Value>& kept() const { return kept_; }
  [[nodiscard]] Value& at(const TreeNode& node) { return kept_.at(node); }

 private:
  NumberRange within_;
  std::int64_t leaves_ = 0;
  std::map<TreeNode, Value> kept_;
};

}  // namespace sluice
