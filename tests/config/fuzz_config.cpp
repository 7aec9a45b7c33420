// libFuzzer target: any text gives a Config that survives printing and reading, or a one-line ConfigError.
// Input: TOML, then for each further line after a NUL byte one --set.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/error.h"

namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice;
  const std::string input(bytes, bytes + size);
  const auto nul = std::min(input.find('\0'), input.size());
  const auto sets = lines_of(std::string_view(input).substr(std::min(nul + 1, input.size())));
  try {
    const config::Config parsed = config::parse(std::string_view(input).substr(0, nul), "fuzz.toml", sets);
    if (config::parse(config::to_toml(parsed), "printed.toml") != parsed) std::abort();
  } catch (const ConfigError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
