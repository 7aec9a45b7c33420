// draw: schedules as text, to read, to diff, and to write by hand; the notation of torch.distributed.pipelining, whose
// CSV dumps parse_schedule() reads too. parse_schedule(draw(s)) == s for every schedule that validate() accepts, and
// for an unsound one too unless it has no devices, a name that is not one word, an id outside [0, kMaxSize), a
// REDUCE_GRAD of another micro-batch than 0, an action in two pairs, or overlaps_next on the last action of a device.
//
//   schedule=1f1b stages=2 micro_batches=2     may be left out: name "custom", sizes from the highest ids
//   0F0 0F1 0B0 0B1                            one line per device: stage, operation, micro-batch
//   1F0 1B0 1F1 1B1                            '-' alone is a device without actions; '#' starts a comment
//
// `stages` counts the stages of all devices together, unlike `sluice schedule --stages`, which counts devices.
// F, B, I, W and REDUCE_GRAD (without a micro-batch) are operations; "(0F3;3B1)" is an overlapped pair. What PyTorch's
// dumps have besides is skipped, for it follows from the rest here: empty cells (its bubbles), SEND_F, RECV_F, SEND_B,
// RECV_B, UNSHARD, RESHARD, and OVERLAP_F_B after a pair.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

inline constexpr int kMaxSize = 1'000'000;  // stages and micro-batches in a text

[[nodiscard]] std::string draw(const Schedule& schedule);

// Where a run stands, as the executor sees it.
struct ActionMark {
  std::vector<std::size_t> current;  // per device: position of the action it is at; the end of its list when it is done
  std::optional<int> failed_device;  // its current action is the one that failed
};

// The picture for an error message: a line per device, its current action in brackets, the failed one with
// "<-- here". Long lists are cut to the neighbourhood of the current action.
//   device 0: 0F0 0F1 [0B0] 0B1
//   device 1: 1F0 [1B0] 1F1 1B1   <-- here: 1B0
[[nodiscard]] std::string draw_grid(const Schedule& schedule, const ActionMark& mark);

// Not checked for soundness: that is validate(). Spaces, tabs and commas separate actions; a UTF-8 byte order mark at
// the start is skipped. Errors: ConfigError "SOURCE:LINE:COLUMN: ...", both counted from 1.
[[nodiscard]] Schedule parse_schedule(std::string_view text, std::string_view source = "schedule");

// The same, and the lines, from 1, on which its parts stand.
struct WrittenSchedule {
  Schedule schedule;
  int header_line = 1;            // 1 where there is none
  std::vector<int> device_lines;  // [device]
};
[[nodiscard]] WrittenSchedule parse_written_schedule(std::string_view text, std::string_view source);

// Letters, digits, '_', '-' and '.', at least one.
[[nodiscard]] bool is_schedule_name(std::string_view name);

}  // namespace sluice::pipeline
