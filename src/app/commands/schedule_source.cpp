#include "app/commands/schedule_source.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/schedule_file.h"
#include "pipeline/schedule/validate.h"

namespace sluice::app {
namespace {

// The stream hides read errors of standard input, so std::ferror() checks for them.
std::string read_standard_input(const std::string& source) {
  std::string text = pipeline::read_schedule_file(std::cin, source);
  if (std::ferror(stdin) != 0) throw ConfigError(source, ": reading it failed; give one line of actions per device");
  return text;
}

void require_same(std::optional<int> given, int found, std::string_view noun, std::string_view option,
                  const std::string& source) {
  if (!given || *given == found) return;
  throw ConfigError(
      concat(source, " has ", counted(found, noun), ", but ", option, " is ", *given, "; remove ", option));
}

pipeline::Schedule read_schedule(const ScheduleArguments& arguments) {
  const bool is_file = arguments.order != kStandardStream;
  const std::string source = is_file ? arguments.order : "standard input";
  const auto text = is_file ? pipeline::read_schedule_file(std::filesystem::path(source)) : read_standard_input(source);
  pipeline::Schedule schedule = pipeline::prove_schedule(text, source);
  require_same(arguments.stages, static_cast<int>(schedule.devices.size()), "device", "--stages", source);
  require_same(arguments.chunks, schedule.micro_batches, "chunk", "--chunks", source);
  if (arguments.virtual_stages) {
    const int most = pipeline::most_stages_per_device(schedule);
    require_same(arguments.virtual_stages, most, "stage", "--virtual", source + ": its fullest device");
  }
  return schedule;
}

pipeline::Schedule generate(const ScheduleArguments& arguments) {
  if (arguments.name.empty() || !arguments.stages || !arguments.chunks) {
    throw ConfigError("schedule needs NAME, --stages and --chunks, or --order FILE; NAME is one of: ",
                      join(pipeline::schedule_names(), ", "), "; see `sluice schedule --help`");
  }
  const int virtual_stages = arguments.virtual_stages.value_or(pipeline::default_virtual_stages(arguments.name));
  const std::int64_t most = 3 * std::int64_t{*arguments.stages} * virtual_stages * *arguments.chunks;
  if (most > pipeline::kMostActions) {
    throw ConfigError("--stages ", *arguments.stages, " --chunks ", *arguments.chunks, " with ",
                      counted(virtual_stages, "stage"), " per device make up to ", most, " actions, more than ",
                      pipeline::kMostActions, "; choose smaller numbers");
  }
  pipeline::Schedule schedule = pipeline::make_schedule(
      arguments.name,
      {.stages = *arguments.stages, .micro_batches = *arguments.chunks, .virtual_stages = arguments.virtual_stages});
  pipeline::validate(schedule);
  return schedule;
}

}  // namespace

pipeline::Schedule proved_schedule(const ScheduleArguments& arguments) {
  return arguments.order.empty() ? generate(arguments) : read_schedule(arguments);
}

}  // namespace sluice::app
