// rules: constraints between the keys of one configuration. The range of a single key is in schema.h.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace sluice::config {

// Source of each key's value ("run.toml:3" or "--set train.lr=1"), for messages.
struct Sources {
  std::string name;
  std::map<std::string, std::string, std::less<>> of_key;

  // Returns where the first of these keys was given; `name` if all have defaults.
  [[nodiscard]] std::string where(std::initializer_list<std::string_view> keys) const;
  // Throws a ConfigError with the source of `keys` and `what`, unless `ok`.
  void require(bool ok, std::initializer_list<std::string_view> keys, const std::string& what) const;
};

struct UnreadKey {
  std::string_view key;
  std::string_view of;
  std::string why;
};
[[nodiscard]] std::vector<UnreadKey> unread_keys(const Config& config);

// Errors: ConfigError naming the keys, their values and the fix; also for the keys of unread_keys().
void check_rules(const Config& config, const Sources& sources);
void check_parameter_server(const Config& config, const Sources& sources);
void check_replicas(const Config& config, const Sources& sources);

}  // namespace sluice::config
