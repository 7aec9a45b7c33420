#include "config/changes.h"

#include <array>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "config/assignment.h"
#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::config {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kKeys{{{"stages", "pipeline.stages"},
                                                                              {"virtual", "pipeline.virtual"},
                                                                              {"chunks", "pipeline.chunks"},
                                                                              {"schedule", "pipeline.schedule"},
                                                                              {"partition", "pipeline.partition"},
                                                                              {"recompute", "pipeline.recompute"},
                                                                              {"replicas", "replicas.local"}}};

const Key& key_of(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& [of_change, of_schema] : kKeys) {
    if (name == of_change) return *find_key(of_schema);
    names.emplace_back(of_change);
  }
  const std::string near = did_you_mean(name, names);
  throw ConfigError(where, ": unknown key '", one_line(name), "'",
                    near.empty() ? concat("; a change may set ", join(names, ", ")) : near);
}

// Splits at commas outside of lists and quotes.
std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    }
    if (quote == '\0') depth += c == '[' ? 1 : (c == ']' ? -1 : 0);
    if (c == ',' && quote == '\0' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::int64_t step_of(const std::string& text, const std::string& where) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc{} || end != text.data() + text.size() || step < 1 || step > kNoLimit) {
    throw ConfigError(where, ": '", one_line(text), "' is not a number of steps from 1 to ", kNoLimit,
                      "; begin with the step after which the plan changes, for example \"20: stages = 2\"");
  }
  return step;
}

Change change_of(const std::string& entry, Config config, const std::string& where) {
  const auto colon = entry.find(':');
  if (colon == std::string::npos)
    throw ConfigError(where, ": no ':' after the step; write a change such as \"20: stages = 2, chunks = 4\"");
  const std::int64_t after = step_of(trimmed(entry.substr(0, colon)), where);
  std::set<std::string> named;
  for (const std::string& part : split_at_commas(entry.substr(colon + 1))) {
    const Assignment assignment = split_assignment(part, where);
    const Key& key = key_of(assignment.name, where);
    if (!named.insert(assignment.name).second)
      throw ConfigError(where, ": ", assignment.name, " is set twice; remove one of the two");
    if (assignment.name == "chunks" && config.train.micro_batch > 0) {
      throw ConfigError(where, ": train.micro_batch = ", config.train.micro_batch,
                        " sets the number of chunks; remove chunks from the change");
    }
    const Value value = assigned_value(key, assignment.value, where);
    try {
      check_value(key, value);
    } catch (const ConfigError& error) {
      throw ConfigError(where, ": ", error.what());
    }
    key.field.set(config, value);
  }
  check_rules(config, {where, {}});
  return {after, std::move(config)};
}

}  // namespace

std::vector<Change> changes_of(const Config& config, const Sources& sources) {
  std::vector<Change> changes;
  for (const std::string& entry : config.pipeline.changes) {
    const std::string where =
        concat(sources.where({"pipeline.changes"}), ": pipeline.changes: ", one_line(to_text(Value{entry})));
    changes.push_back(change_of(entry, changes.empty() ? config : changes.back().config, where));
    if (changes.size() > 1 && changes.back().after <= changes[changes.size() - 2].after) {
      throw ConfigError(where, ": its step must be above ", changes[changes.size() - 2].after,
                        ", the step of the previous change; sort the changes by step");
    }
  }
  return changes;
}

}  // namespace sluice::config
