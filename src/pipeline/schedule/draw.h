// draw: schedules as text, in the notation of torch.distributed.pipelining; parse_schedule() also reads its CSV dumps.
// parse_schedule(draw(s)) == s for every schedule that validate() accepts, and for others unless they have no devices,
// a name that is not one word, an id outside [0, kMaxSize), a REDUCE_GRAD of a micro-batch other than 0, an action in
// two pairs, or overlaps_next on the last action of a device.
//
//   schedule=1f1b stages=2 micro_batches=2     optional; defaults: name "custom", sizes from the highest ids
//   0F0 0F1 0B0 0B1                            one line per device: stage, operation, micro-batch
//   1F0 1B0 1F1 1B1                            '-' alone is a device without actions; '#' starts a comment
//
// `stages` counts the stages of all devices together, unlike `sluice schedule --stages`, which counts devices.
// Operations are F, B, I, W and REDUCE_GRAD (without a micro-batch); "(0F3;3B1)" is an overlapped pair. Other content
// of PyTorch's dumps is skipped, because the schedule implies it: empty cells (bubbles), SEND_F, RECV_F, SEND_B,
// RECV_B, UNSHARD, RESHARD, and OVERLAP_F_B after a pair.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

inline constexpr int kMaxSize = 1'000'000;  // largest number of stages and of micro-batches in a text

[[nodiscard]] std::string draw(const Schedule& schedule);

struct ActionMark {
  // [device]: position of the current action; the size of its list if it is done.
  std::vector<std::size_t> current;
  std::optional<int> failed_device;
};

// A picture for error messages, with the current actions in brackets. Long lists are cut to their neighbourhood.
//   device 0: 0F0 0F1 [0B0] 0B1
//   device 1: 1F0 [1B0] 1F1 1B1   <-- here: 1B0
[[nodiscard]] std::string draw_grid(const Schedule& schedule, const ActionMark& mark);

// Does not validate(). Spaces, tabs and commas separate actions; a UTF-8 byte order mark at the start is skipped.
// Errors: ConfigError "SOURCE:LINE:COLUMN: ...", both counted from 1.
[[nodiscard]] Schedule parse_schedule(std::string_view text, std::string_view source = "schedule");

struct WrittenSchedule {
  Schedule schedule;
  int header_line = 1;            // 1 without a header
  std::vector<int> device_lines;  // [device]
};
[[nodiscard]] WrittenSchedule parse_written_schedule(std::string_view text, std::string_view source);

[[nodiscard]] bool is_schedule_name(std::string_view name);

}  // namespace sluice::pipeline
