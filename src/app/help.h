// help: what `--help` prints: the values of options in words instead of CLI11's types, and examples of each command.
// Not here: what the options are (commands/). Threads: one. Errors: none.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace sluice::app {

// Of the value of an option: "N (1 to 1024; default 2)"; empty: it takes none, or its own name says it all.
[[nodiscard]] std::string value_words(const CLI::Option& option, bool is_positional);

// Requires: all commands are added.
void settle_help(CLI::App& app);

}  // namespace sluice::app
