#include "app/commands.h"

#include <utility>
#include <vector>

namespace sluice::app {

void add_commands(CLI::App& app) {
  using Add = void (*)(CLI::App&);
  const std::pair<const char*, std::vector<Add>> groups[] = {
      {"Train", {add_train, add_eval, add_step, add_merge, add_tokenize}},
      {"Look", {add_report, add_digest, add_compare, add_config, add_listings}},
      {"Plan", {add_profile, add_tune, add_schedule, add_simulate, add_memory, add_replay, add_batch_plan}},
      {"Serve", {add_serve, add_make_keys}}};
  for (const auto& [name, commands] : groups) {
    for (const Add add : commands) add(app);
    for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      if (command->get_group() == "Subcommands") command->group(name);
  }
}

}  // namespace sluice::app
