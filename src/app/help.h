// help: the output of `--help`, with plain words for CLI11's types and with examples.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace sluice::app {

// Returns the description of an option's value, for example "N (1 to 1024; default 2)"; empty for flags.
[[nodiscard]] std::string value_words(const CLI::Option& option, bool is_positional);

void settle_help(CLI::App& app);

}  // namespace sluice::app
