// print: a Config as TOML, and the schema as a documentation page.
#include <algorithm>

#include "config/schema.h"
#include "core/concat.h"

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

}  // namespace

std::vector<std::pair<std::string, std::string>> values(const Config& config) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto& key : schema()) values.emplace_back(key.name, to_text(key.field.get(config)));
  return values;
}

std::string to_toml(const Config& config) {
  std::string text;
  std::string_view table;
  for (const auto& key : schema()) {
    if (key.table() != table) {
      text += concat(text.empty() ? "" : "\n", "[", key.table(), "]\n");
      table = key.table();
    }
    std::string line = concat(key.leaf(), " = ", to_text(key.field.get(config)));
    line.resize(std::max(line.size(), kCommentColumn), ' ');
    text += concat(line, "  # ", comment_of(key), "\n");
  }
  return text;
}

std::string to_markdown() {
  std::string text =
      "# Configuration\n\n"
      "A run is described by a TOML file; `--set key=value` on the command line overrides a key of it. Every key has "
      "a\n"
      "default. `sluice config FILE` prints all of them with the values a run would use. An integer whose range has "
      "no\n"
      "upper end may go up to 1000000000.\n\n"
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
