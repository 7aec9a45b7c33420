// commands: each function adds a sub-command. Results go to standard output, as text or one JSON object; logs go to
// standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::app {

void add_tokenize(CLI::App& app);
void add_train(CLI::App& app);
void add_serve(CLI::App& app);
void add_make_keys(CLI::App& app);
void add_eval(CLI::App& app);
void add_step(CLI::App& app);
void add_merge(CLI::App& app);
void add_digest(CLI::App& app);
void add_compare(CLI::App& app);
void add_profile(CLI::App& app);
void add_tune(CLI::App& app);
void add_config(CLI::App& app);
void add_report(CLI::App& app);
void add_schedule(CLI::App& app);
void add_batch_plan(CLI::App& app);
void add_simulate(CLI::App& app);
void add_memory(CLI::App& app);
void add_replay(CLI::App& app);
void add_listings(CLI::App& app);  // models, datasets, devices, version

void add_commands(CLI::App& app);  // in the order of --help

[[nodiscard]] std::string version_text();

}  // namespace sluice::app
