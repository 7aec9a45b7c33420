#include <algorithm>

#include "config/schema.h"
#include "core/concat.h"
#include "core/text.h"

namespace sluice::config {
namespace {

constexpr std::size_t kCommentColumn = 34;

std::string comment_of(const Key& key) {
  const std::string limit = limit_text(key);
  std::string comment(key.help);
  if (!key.unit.empty()) comment += concat(" (", key.unit, limit.empty() ? "" : "; ", limit, ")");
  if (key.unit.empty() && !limit.empty()) comment += concat(" (", limit, ")");
  return comment;
}

std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

struct Listing {
  std::string text;
  int hidden = 0;
};

Listing toml_of(const Config& config, bool with_hidden) {
  Listing listing;
  std::string_view table;
  for (const auto& key : schema()) {
    const std::string value = to_text(key.field.get(config));
    if (!with_hidden && key.has(kAdvanced) && value == default_text(key)) {
      ++listing.hidden;
      continue;
    }
    if (key.table() != table) {
      listing.text += concat(listing.text.empty() ? "" : "\n", "[", key.table(), "]\n");
      table = key.table();
    }
    std::string line = concat(key.leaf(), " = ", value);
    line.resize(std::max(line.size(), kCommentColumn), ' ');
    listing.text += concat(line, "  # ", comment_of(key), "\n");
  }
  return listing;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> values(const Config& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& key : schema()) values.emplace_back(key.name, to_text(key.field.get(config)));
  return values;
}

std::string to_toml(const Config& config) { return toml_of(config, /*with_hidden=*/true).text; }

std::string to_short_toml(const Config& config) {
  const auto [text, hidden] = toml_of(config, /*with_hidden=*/false);
  return concat(text, "\n# Hidden: ", counted(hidden, "advanced key"),
                " that were not changed; `sluice config --all` lists every key.\n");
}

std::string to_markdown() {
  std::string text =
      "# Configuration\n\n"
      "A TOML file describes a run. `--set key=value` on the command line replaces the value of a key. Every key has\n"
      "a default. `sluice config --all FILE` prints every key with the value that a run would use. Without `--all` it\n"
      "hides advanced keys that were not changed. An integer without an upper limit may be at most 1000000000.\n\n"
      "This page is generated: `sluice config --markdown > docs/reference/configuration.md`.\n";
  std::string_view table;
  for (const auto& key : schema()) {
    if (key.table() != table) {
      text += concat("\n## [", key.table(), "]\n\n| key | type | default | range | unit | meaning |\n",
                     "|---|---|---|---|---|---|\n");
      table = key.table();
    }
    text += concat("| `", key.name, "` | ", cell(type_text(key)), " | `", cell(default_text(key)), "` | ",
                   cell(limit_text(key)), " | ", key.unit, " | ", cell(key.help), " |\n");
  }
  return text;
}

}  // namespace sluice::config
