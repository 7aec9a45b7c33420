// schedule_arguments: the options of `sluice schedule` as values; schedule.cpp defines their names and help.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/options.h"

namespace sluice::app {

inline constexpr std::string_view kStandardStream = "-";

// Each list has one entry for all devices, or one entry per device.
struct ScheduleArguments {
  std::string name;
  std::string order;
  std::optional<int> stages;
  std::optional<int> chunks;
  std::optional<int> virtual_stages;

  // Times per micro-batch, summed over the stages of a device.
  std::vector<double> forward{1};
  std::vector<double> backward;  // empty: input + weight
  std::vector<double> input{1};
  std::vector<double> weight{1};
  double hop = 0;
  double overlap = 0;

  // Bytes, summed over the stages of a device; empty if not given.
  std::vector<std::uint64_t> fixed_bytes;
  std::vector<std::uint64_t> activation_bytes;
  std::vector<std::uint64_t> stash_bytes;
  std::vector<std::uint64_t> memory;
  std::vector<std::uint64_t> sent_bytes;  // per micro-batch and stage
  double bandwidth = std::numeric_limits<double>::infinity();

  std::string svg;
  std::string text;
  OutputArguments output;
};

}  // namespace sluice::app
