// help: what `--help` prints: the values of options in words instead of CLI11's types, and examples of each command.
// Not here: what the options are (commands/). Threads: one. Errors: none.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace sluice::app {

// Text for an option's value, for example "N (1 to 1024; default 2)"; empty for flags.
[[nodiscard]] std::string value_words(const CLI::Option& option, bool is_positional);

// Requires: all commands are added.
void settle_help(CLI::App& app);

}  // namespace sluice::app
