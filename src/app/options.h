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
  // Loads the configuration in a process of a group. If it fails, the other processes do not wait for this one.
  [[nodiscard]] config::Config load(const comm::WorldOptions& world) const;
  [[nodiscard]] std::string name() const;  // file name without folder and extension
};

struct OutputArguments {
  bool json = false;

  void add_to(CLI::App& command);
  // Throws StorageError if standard output cannot be written.
  void print(const nlohmann::ordered_json& object, const std::string& text) const;
};

void add_world_options(CLI::App& command, comm::WorldOptions& world);

// Throws StorageError if standard output cannot be written.
void print_out(const std::string& text);

// Rejects "", which an unset shell variable produces.
[[nodiscard]] std::string not_empty(const std::string& value);

// Checks for options with a number. All reject NaN and infinity.
[[nodiscard]] std::string positive(const std::string& value);
[[nodiscard]] std::string not_negative(const std::string& value);
[[nodiscard]] CLI::Validator within(double least, double most);

[[nodiscard]] std::string memory_size(const std::string& value);

[[nodiscard]] std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error, int argc,
                                               const char* const* argv);

}  // namespace sluice::app
