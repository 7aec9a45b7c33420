// schedule_arguments: what `sluice schedule` was asked for. Not here: the options' names and help (schedule.cpp).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/options.h"

namespace sluice::app {

inline constexpr std::string_view kStandardStream = "-";  // where a file is asked for: standard input or output

// Lists have one entry for all devices, or one for each.
struct ScheduleArguments {
  std::string name;
  std::string order;  // file
  std::optional<int> stages;
  std::optional<int> chunks;
  std::optional<int> virtual_stages;

  // Times per micro-batch, of all stages of a device together.
  std::vector<double> forward{1};
  std::vector<double> backward;  // empty: input and weight say it
  std::vector<double> input{1};
  std::vector<double> weight{1};
  double hop = 0;
  double overlap = 0;

  // Bytes of all stages of a device together; empty: not given.
  std::vector<std::uint64_t> fixed_bytes;
  std::vector<std::uint64_t> activation_bytes;  // per micro-batch
  std::vector<std::uint64_t> stash_bytes;       // per micro-batch
  std::vector<std::uint64_t> memory;
  std::vector<std::uint64_t> sent_bytes;  // per micro-batch and stage
  double bandwidth = std::numeric_limits<double>::infinity();

  std::string svg;   // file
  std::string text;  // file
  OutputArguments output;
};

}  // namespace sluice::app
