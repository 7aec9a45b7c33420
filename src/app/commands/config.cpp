#include <memory>

#include "app/commands.h"
#include "app/options.h"

namespace sluice::app {
namespace {

struct Arguments {
  ConfigArguments config;
  bool all = false;
  bool markdown = false;
};

std::string listing(const Arguments& arguments) {
  if (arguments.markdown) return config::to_markdown();
  const config::Config config =
      arguments.config.file.empty() ? config::parse("", "defaults", arguments.config.sets) : arguments.config.load();
  return arguments.all ? config::to_toml(config) : config::to_short_toml(config);
}

}  // namespace

void add_config(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "config", "Print the configuration of a run, or the defaults: each key with its value, meaning, unit and range");
  const auto arguments = std::make_shared<Arguments>();
  arguments->config.add_to(*command, /*required=*/false);
  command->get_option("CONFIG")->description("Configuration file (TOML); default: the default of every key");
  command->add_flag("--all", arguments->all, "Also print advanced keys that were not changed");
  command->add_flag("--markdown", arguments->markdown,
                    "Print docs/reference/configuration.md instead: the table of all keys");
  command->callback([arguments] { print_out(listing(*arguments)); });
}

}  // namespace sluice::app
