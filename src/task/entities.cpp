#include "task/entities.h"

#include <algorithm>

namespace sluice::task {
namespace {

bool begins_at(std::span<const EntityLabel> labels, std::size_t i) {
  if (i == labels.size() || labels[i].name < 0) return false;
  return i == 0 || labels[i].begins || labels[i - 1].ends || labels[i].name != labels[i - 1].name;
}

bool ends_before(std::span<const EntityLabel> labels, std::size_t i) {
  if (i == 0 || labels[i - 1].name < 0) return false;
  return i == labels.size() || labels[i].begins || labels[i - 1].ends || labels[i].name != labels[i - 1].name;
}

}  // namespace

std::vector<EntityLabel> entity_labels(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  std::vector<EntityLabel> labels;
  for (const std::string& name : names) {
    EntityLabel& label = labels.emplace_back();
    const char kind = name.size() > 2 && name[1] == '-' ? name[0] : 'O';
    const bool begins = kind == 'B' || kind == 'S', ends = kind == 'E' || kind == 'S';
    if (!begins && !ends && kind != 'I') continue;
    const auto at = std::ranges::find(known, name.substr(2));
    label = {at - known.begin(), begins, ends};
    if (at == known.end()) known.push_back(name.substr(2));
  }
  return labels;
}

EntityCounts compare_entities(std::span<const EntityLabel> found, std::span<const EntityLabel> wanted) {
  EntityCounts counts;
  bool is_same = false;  // the entities that are open began together
  for (std::size_t i = 0; i <= found.size(); ++i) {
    const int ends = (ends_before(found, i) ? 1 : 0) + (ends_before(wanted, i) ? 1 : 0);
    if (ends == 2 && is_same) ++counts.right;
    const int found_begins = begins_at(found, i) ? 1 : 0, wanted_begins = begins_at(wanted, i) ? 1 : 0;
    counts.found += found_begins;
    counts.wanted += wanted_begins;
    const int begins = found_begins + wanted_begins;
    if (ends + begins > 0) is_same = begins == 2 && found[i].name == wanted[i].name;
  }
  return counts;
}

}  // namespace sluice::task
