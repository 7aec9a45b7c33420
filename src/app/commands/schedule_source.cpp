#include "app/commands/schedule_source.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/validate.h"

namespace sluice::app {
namespace {

// 64 devices, 512 chunks and 16 stages a device are 1.6 million. That many take about 0.2 GB here and make an SVG of
// half a gigabyte: a picture of more helps nobody.
constexpr std::int64_t kMostActions = 2'000'000;
constexpr std::uintmax_t kLargestFile = 64U << 20U;  // bytes of an order file: room for as many, and PyTorch's messages
constexpr std::string_view kGiveAFile = "; give a file with one line of actions per device";

std::string read_all(std::istream& in, const std::string& source) {
  std::string text;
  for (char block[1 << 16]; in.read(block, sizeof block) || in.gcount() > 0;) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kLargestFile)
      throw ConfigError(concat(source, ": larger than ", human_bytes(kLargestFile), "; this is no order of actions"));
  }
  // The stream of standard input does not keep what went wrong below it.
  if (in.bad() || (&in == &std::cin && std::ferror(stdin) != 0))
    throw ConfigError(concat(source, ": reading it failed", kGiveAFile));
  return text;
}

std::string read_order(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed)) throw ConfigError(concat(path, ": is a folder", kGiveAFile));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(concat(path, ": cannot be read", kGiveAFile));
  return read_all(in, path);
}

// A number that was given on the command line besides the file must be the file's.
void require_same(std::optional<int> given, int found, std::string_view noun, std::string_view option,
                  const std::string& source) {
  if (!given || *given == found) return;
  throw ConfigError(
      concat(source, " has ", counted(found, noun), " where ", option, " says ", *given, "; leave ", option, " out"));
}

void require_few_actions(const pipeline::Schedule& schedule, const std::string& source) {
  std::int64_t actions = 0;
  for (const auto& of_device : schedule.devices) actions += static_cast<std::int64_t>(of_device.size());
  if (actions > kMostActions)
    throw ConfigError(concat(source, " has ", actions, " actions, more than ", kMostActions, "; give a shorter one"));
}

pipeline::Schedule read_schedule(const ScheduleArguments& arguments) {
  const bool is_file = arguments.order != kStandardStream;
  const std::string source = is_file ? arguments.order : "standard input";
  const auto text = is_file ? read_order(arguments.order) : read_all(std::cin, source);
  pipeline::Schedule schedule = pipeline::parse_schedule(text, source);
  require_few_actions(schedule, source);
  require_same(arguments.stages, static_cast<int>(schedule.devices.size()), "device", "--stages", source);
  require_same(arguments.chunks, schedule.micro_batches, "chunk", "--chunks", source);
  try {
    pipeline::validate(schedule);
  } catch (const ConfigError& error) {  // names actions by device and position; the file is named here
    throw ConfigError(concat(source, ": ", error.what()));
  }
  if (arguments.virtual_stages) {
    const int most = pipeline::most_stages_per_device(schedule);
    require_same(arguments.virtual_stages, most, "stage", "--virtual", source + ": its fullest device");
  }
  return schedule;
}

pipeline::Schedule generate(const ScheduleArguments& arguments) {
  if (arguments.name.empty() || !arguments.stages || !arguments.chunks) {
    throw ConfigError(concat("schedule needs NAME, --stages and --chunks, or --order FILE; NAME is one of: ",
                             join(pipeline::schedule_names(), ", "), "; see `sluice schedule --help`"));
  }
  const int virtual_stages = arguments.virtual_stages.value_or(pipeline::default_virtual_stages(arguments.name));
  const std::int64_t most = 3 * std::int64_t{*arguments.stages} * virtual_stages * *arguments.chunks;
  if (most > kMostActions) {
    throw ConfigError(concat("--stages ", *arguments.stages, " --chunks ", *arguments.chunks, " with ",
                             counted(virtual_stages, "stage"), " a device make up to ", most, " actions, more than ",
                             kMostActions, "; ask for fewer"));
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
