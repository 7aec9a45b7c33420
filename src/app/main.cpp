// The `sluice` command: parses the command line, runs one sub-command, turns errors into one line and an exit code.
#include <exception>
#include <sstream>

#include <c10/util/Logging.h>

#include "app/commands.h"
#include "app/options.h"
#include "app/process.h"
#include "core/error.h"
#include "core/log.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "pipeline/failure.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Sluice trains transformers and CNNs as replicated, micro-batched pipelines.", "sluice");
  app.require_subcommand(1);
  app.fallthrough();  // --verbose and --quiet may follow the sub-command
  app.failure_message(CLI::FailureMessage::help);
  bool verbose = false, quiet = false;
  app.set_version_flag("--version", sluice::app::version_text());
  CLI::Option* const loud = app.add_flag("--verbose", verbose, "Log debug messages too");
  loud->each([](const std::string&) { sluice::set_log_level(sluice::LogLevel::kDebug); });
  app.add_flag("--quiet", quiet, "Show warnings, errors and the final summary only; log.txt has all")
      ->excludes(loud)
      ->each([](const std::string&) { sluice::quiet_console(); });
  sluice::app::add_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app.exit(success, text);
    sluice::app::print_out(text.str());
  } catch (const CLI::ParseError& error) {
    throw sluice::ConfigError(sluice::app::describe_usage_error(app, error, argc, argv));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  sluice::app::settle_environment(argv);
  c10::initLogging();  // reads TORCH_CPP_LOG_LEVEL
  sluice::device::tune_malloc();
  sluice::device::count_memory();
  sluice::device::use_cpu_threads(1);  // this thread only coordinates; threads of work set their own
  try {
    return run(argc, argv);
  } catch (const sluice::Error& error) {
    sluice::app::end_with(error);
  } catch (...) {
    sluice::app::end_with(sluice::pipeline::describe_failure(std::current_exception(), "sluice"));
  }
}
