#include "app/program.h"

#include <exception>
#include <sstream>
#include <utility>

#include <c10/util/Logging.h>

#include "app/commands.h"
#include "app/help.h"
#include "app/options.h"
#include "app/process.h"
#include "core/error.h"
#include "core/log.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "graph/exported_model.h"
#include "pipeline/failure.h"

namespace sluice::app {
namespace {

int parse_and_run(int argc, char** argv) {
  CLI::App app("Sluice trains transformers and CNNs as replicated, micro-batched pipelines.", "sluice");
  app.require_subcommand(1);
  app.fallthrough();  // allows --verbose and --quiet after the sub-command
  app.failure_message(CLI::FailureMessage::help);
  bool verbose = false, quiet = false;
  app.set_version_flag("--version", version_text());
  CLI::Option* const loud = app.add_flag("--verbose", verbose, "Log debug messages too");
  loud->each([](const std::string&) { set_log_level(LogLevel::kDebug); });
  app.add_flag("--quiet", quiet, "Show warnings, errors and the final summary only; log.txt has all")
      ->excludes(loud)
      ->each([](const std::string&) { quiet_console(); });
  add_commands(app);
  settle_help(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app.exit(success, text);
    print_out(text.str());
  } catch (const CLI::RuntimeError& end) {  // a command that answers with its exit code
    return end.get_exit_code();
  } catch (const CLI::ParseError& error) {
    throw ConfigError(describe_usage_error(app, error, argc, argv));
  }
  return 0;
}

}  // namespace

int run_program(int argc, char** argv, Extensions extensions) {
  settle_environment();
  refuse_too_large_files();
  c10::initLogging();  // reads TORCH_CPP_LOG_LEVEL
  device::tune_malloc();
  device::count_memory();
  device::use_cpu_threads(1);  // this thread only coordinates; device threads set their own number
  try {
    graph::add_exported_models();
    for (models::Family& family : extensions.models) models::add_family(std::move(family));
    for (data::DatasetEntry& dataset : extensions.datasets) data::add_dataset(std::move(dataset));
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    end_with(error);
  } catch (...) {
    end_with(pipeline::describe_failure(std::current_exception(), "sluice"));
  }
}

}  // namespace sluice::app
