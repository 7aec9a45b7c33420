// options: command-line options that several sub-commands share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "comm/world.h"
#include "config/config.h"

namespace sluice::app {

// CONFIG [--set key=value]...
struct ConfigArguments {
  std::string file;
  std::vector<std::string> sets;

  void add_to(CLI::App& command, bool required = true);
  [[nodiscard]] config::Config load() const;
  // The same of a process that may be one of several: the others do not wait for one that has no configuration.
  [[nodiscard]] config::Config load(const comm::WorldOptions& world) const;
  [[nodiscard]] std::string name() const;  // file name without folder and ending
};

// --json
struct OutputArguments {
  bool json = false;

  void add_to(CLI::App& command);
  // One JSON object, or the text, on standard output. Throws StorageError when that cannot be written.
  void print(const nlohmann::ordered_json& object, const std::string& text) const;
};

// --rank, --world-size, --init, --if-name
void add_world_options(CLI::App& command, comm::WorldOptions& world);

// Writes to standard output. Throws StorageError when that cannot be written.
void print_out(const std::string& text);

// A check for options: "" is what an unset shell variable leaves.
[[nodiscard]] std::string not_empty(const std::string& value);

// Checks for options with a number: finite and above 0, or 0, too; or within bounds, which NaN is not.
[[nodiscard]] std::string positive(const std::string& value);
[[nodiscard]] std::string not_negative(const std::string& value);
[[nodiscard]] CLI::Validator within(double least, double most);

// What was wrong on the command line, with the nearest sub-command where its name is unknown.
[[nodiscard]] std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error, int argc,
                                               const char* const* argv);

}  // namespace sluice::app
