// help: the output of `--help`: option values in words instead of CLI11's types, and examples per command. Threads:
// one. Errors: never throws.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace sluice::app {

// Returns the description of an option's value, for example "N (1 to 1024; default 2)"; empty for flags.
[[nodiscard]] std::string value_words(const CLI::Option& option, bool is_positional);

// Requires: all commands are added.
void settle_help(CLI::App& app);

}  // namespace sluice::app
