#include <memory>

#include "app/commands.h"
#include "app/options.h"

namespace sluice::app {

void add_config(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("config", "Print the resolved configuration with every key, its unit and range");
  const auto arguments = std::make_shared<ConfigArguments>();
  const auto markdown = std::make_shared<bool>(false);
  command->add_option("CONFIG", arguments->file, "Configuration file (TOML); without one, the defaults");
  command->add_option("--set", arguments->sets, "Replace one value, e.g. --set train.lr=0.1; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--markdown", *markdown, "Print docs/reference/configuration.md instead: the table of all keys");
  command->callback([arguments, markdown] {
    if (*markdown) {
      print_out(config::to_markdown());
      return;
    }
    print_out(
        config::to_toml(arguments->file.empty() ? config::parse("", "defaults", arguments->sets) : arguments->load()));
  });
}

}  // namespace sluice::app
