#include "app/options.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "train/setup/peers.h"

namespace sluice::app {
namespace {

// Returns NaN if `text` is not a number.
double number_of(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::numeric_limits<double>::quiet_NaN() : number;
}

// "--" and negative numbers are values.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

std::string describe_unknown_option(const CLI::App& app, const std::string& word) {
  const std::string option = word.substr(0, word.find('='));
  std::string command = app.get_name();
  std::vector<std::string> names;
  const auto add_names = [&](const CLI::App& of) {
    for (const CLI::Option* known : of.get_options())
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  };
  for (const CLI::App* chosen : app.get_subcommands()) {
    command += " " + chosen->get_name();
    add_names(*chosen);
  }
  add_names(app);
  if (std::ranges::find(names, option) != names.end()) return concat("'", option, "' must come after the command");
  return concat("`", command, "` has no option '", printable(option), "'", did_you_mean(option, names));
}

// CLI11 says "--resume: 1 required DIR|auto missing".
std::string describe_missing_value(const std::string& text) {
  constexpr std::string_view kMiddle = ": 1 required ", kEnd = " missing";
  const std::size_t middle = text.find(kMiddle);
  if (middle == std::string::npos || !text.ends_with(kEnd)) return text;
  const std::size_t type = middle + kMiddle.size();
  return concat(text.substr(0, middle), " needs a value: ", text.substr(type, text.size() - kEnd.size() - type));
}

// Appends where to read more. `what` may end with the question of did_you_mean().
std::string with_help(const std::string& what) {
  return concat(what, what.ends_with('?') ? " See" : "; see", " `sluice --help` and `sluice COMMAND --help`");
}

}  // namespace

void ConfigArguments::add_to(CLI::App& command, bool required) {
  command
      .add_option("CONFIG", file,
                  "Configuration file (TOML); configs/ has examples, docs/reference/configuration.md all keys")
      ->required(required);
  command.add_option("--set", sets, "Replace one value of the configuration, e.g. --set train.lr=0.1; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

config::Config ConfigArguments::load() const { return config::load(file, sets); }

config::Config ConfigArguments::load(const comm::WorldOptions& world) const {
  try {
    return load();
  } catch (const Error& why) {
    train::send_failure_to_peers(comm::choose_world(world), why);
    throw;
  }
}

std::string ConfigArguments::name() const { return std::filesystem::path(file).stem().string(); }

void OutputArguments::add_to(CLI::App& command) {
  command.add_flag("--json", json, "Print one JSON object instead of text");
}

void OutputArguments::print(const nlohmann::ordered_json& object, const std::string& text) const {
  print_out((json ? object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) : text) + "\n");
}

void add_world_options(CLI::App& command, comm::WorldOptions& world) {
  constexpr auto kGroup = "Several processes (default: from the environment of torchrun, Slurm or Open MPI)";
  command.add_option("--rank", world.rank, "Number of this process, from 0; with --world-size")->group(kGroup);
  command.add_option("--world-size", world.world_size, "Number of processes")->group(kGroup);
  command
      .add_option("--init", world.init,
                  "Address of rank 0: tcp://HOST:PORT, or file:///PATH on a disk that all ranks share; default: "
                  "env://, that is MASTER_ADDR and MASTER_PORT")
      ->type_name("URL")
      ->group(kGroup);
  command
      .add_option("--if-name", world.interface,
                  "Network interface for tensors; default: the interface of the route to rank 0")
      ->type_name("NAME")
      ->group(kGroup);
}

void print_out(const std::string& text) {
  std::cout << text;
  if (!std::cout.flush())
    throw StorageError("standard output cannot be written; free space or close the pipe's reader later");
}

std::string not_empty(const std::string& value) { return value.empty() ? "must not be empty" : ""; }

std::string positive(const std::string& value) {
  const double number = number_of(value);
  return std::isfinite(number) && number > 0 ? "" : concat("'", value, "' is not a finite number above 0");
}

std::string not_negative(const std::string& value) {
  const double number = number_of(value);
  return std::isfinite(number) && number >= 0 ? "" : concat("'", value, "' is not a finite number of at least 0");
}

CLI::Validator within(double least, double most) {
  const std::string bounds = concat(least, " to ", most);
  const auto refuse = [=](const std::string& value) {
    const double number = number_of(value);
    return number >= least && number <= most ? "" : concat("'", value, "' is not in range ", bounds);
  };
  return {refuse, concat("in [", least, " - ", most, "]")};
}

std::string memory_size(const std::string& value) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 50;  // as device.memory_limit
  std::string plain = value;                                // TOML's integers may have a sign and underscores
  if (value.find_first_not_of("+0123456789_") == std::string::npos)
    std::erase_if(plain, [](char c) { return c < '0' || c == '_'; });
  const auto bytes = parse_bytes(plain);
  if (bytes && *bytes >= 0 && *bytes <= kLargest) return "";
  return concat("'", value, "' is not a size of at most ", exact_bytes(kLargest),
                "; write a number and a unit (B, KB to TB, KiB to TiB), for example 16GiB");
}

std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, const char* const* argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (argc > 1 && argv[1][0] != '-' && std::ranges::find(names, argv[1]) == names.end())
    return with_help(concat("`sluice` has no command '", argv[1], "'", did_you_mean(argv[1], names)));
  for (const std::string& word : app.remaining(/*recurse=*/true))
    if (is_option(word)) return with_help(describe_unknown_option(app, word));
  return with_help(describe_missing_value(error.what()));
}

}  // namespace sluice::app
