// reject_support: what is wrong with a configuration, as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/error.h"

namespace sluice::config {

inline std::string error_of(std::string_view text, const std::vector<std::string>& sets = {}) {
  try {
    (void)parse(text, "run.toml", sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace sluice::config
