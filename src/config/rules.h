// rules: what keys of one configuration demand of each other. Not here: the range of a single key (schema.h).
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace sluice::config {

// Where each key got its value ("run.toml:3" or "--set train.lr=1"), for messages.
struct Sources {
  std::string name;  // of the whole configuration
  std::map<std::string, std::string, std::less<>> of_key;

  // Where the first of these keys was given; the name when all are defaults.
  [[nodiscard]] std::string where(std::initializer_list<std::string_view> keys) const;
  // ConfigError that says `what`, with that source, unless `ok`.
  void require(bool ok, std::initializer_list<std::string_view> keys, const std::string& what) const;
};

// A key that is set although the value of another one leaves it unread.
struct UnreadKey {
  std::string_view key;
  std::string_view of;  // whose value leaves it unread
  std::string why;
};
[[nodiscard]] std::vector<UnreadKey> unread_keys(const Config& config);

// Errors: ConfigError naming the keys, their values and what to change; also for what unread_keys() finds.
void check_rules(const Config& config, const Sources& sources);
// Those of [ps], of which it is a part.
void check_parameter_server(const Config& config, const Sources& sources);

}  // namespace sluice::config
