#include "task/entities.h"

#include <algorithm>

namespace sluice::task {
namespace {

bool begins_at(std::span<const EntityLabel> labels, std::size_t i) {
  if (i == labels.size() || labels[i].name < 0) return false;
  return i == 0 || labels[i].begins || labels[i].name != labels[i - 1].name;
}

bool ends_before(std::span<const EntityLabel> labels, std::size_t i) {
  if (i == 0 || labels[i - 1].name < 0) return false;
  return i == labels.size() || labels[i].name != labels[i - 1].name || labels[i].begins;
}

}  // namespace

std::vector<EntityLabel> entity_labels(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  std::vector<EntityLabel> labels;
  for (const std::string& name : names) {
    EntityLabel& label = labels.emplace_back();
    if (!name.starts_with("B-") && !name.starts_with("I-")) continue;
    const auto at = std::ranges::find(known, name.substr(2));
    label = {at - known.begin(), name.starts_with("B-")};
    if (at == known.end()) known.push_back(name.substr(2));
  }
  return labels;
}

EntityCounts compare_entities(std::span<const EntityLabel> found, std::span<const EntityLabel> wanted) {
  EntityCounts counts;
  bool is_same = false;  // the entities that are open began together
  for (std::size_t i = 0; i <= found.size(); ++i) {
    const bool found_ends = ends_before(found, i), wanted_ends = ends_before(wanted, i);
    if (found_ends && wanted_ends && is_same) ++counts.right;
    if (found_ends || wanted_ends) is_same = false;
    const bool found_begins = begins_at(found, i), wanted_begins = begins_at(wanted, i);
    counts.found += found_begins ? 1 : 0;
    counts.wanted += wanted_begins ? 1 : 0;
    if (found_begins || wanted_begins) is_same = found_begins && wanted_begins && found[i].name == wanted[i].name;
  }
  return counts;
}

}  // namespace sluice::task
