// generators: pure functions from the shape of a pipeline to a schedule.
// Not here: how long anything takes (simulate.h), and whether a schedule is sound (validate.h proves that, also for
// these). docs/reference/schedules.md compares them: bubble, memory, source.
// Letters: p devices, m micro-batches, V virtual stages a device, device r from 0; S = p*V stages in all.
// Errors: ConfigError for a shape that the schedule does not have, and for an unknown name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

struct PipelineShape {
  int stages = 1;  // devices of the pipeline: what users call stages
  int micro_batches = 1;
  std::optional<int> virtual_stages;  // a device; default: default_virtual_stages(name)
};

// One stage a device. Micro-batches in flight: those whose activations a device keeps (inspect.h).

// GPipe (Huang et al. 2019, arXiv:1811.06965): every forward, then every backward in the same order; m
// in flight.
[[nodiscard]] Schedule make_gpipe(const PipelineShape& shape);

// 1F1B (PipeDream-Flush; Narayanan et al. 2021, arXiv:2104.04473): p-1-r forwards, then one forward, one backward;
// min(m, p-r) in flight.
[[nodiscard]] Schedule make_1f1b(const PipelineShape& shape);

// 1F1B with 2(p-1-r) forwards first, so that a hop's latency is hidden; min(m, 2(p-r)-1) in flight.
// ("1F1B-overlap-friendly" of Alpa; Zhuang et al. 2022, arXiv:2211.05322.)
[[nodiscard]] Schedule make_eager_1f1b(const PipelineShape& shape);

// Zero bubble (Qi et al. 2023, arXiv:2401.10241): the backward is cut into I and W, and W fills the bubbles. H1 keeps
// the memory of 1F1B's first device on all: p in flight. H2 has 2(p-1-r) forwards first and 2p-1 in flight.
[[nodiscard]] Schedule make_zb_h1(const PipelineShape& shape);
[[nodiscard]] Schedule make_zb_h2(const PipelineShape& shape);

// V stages a device, in a loop: device r owns stages r, p+r, 2p+r, ...

// Interleaved 1F1B (Narayanan et al. 2021, section 2.2): micro-batches in groups of about p; a device takes a group
// through its first stage, then its second, and so on. Groups are equal where p divides m, else as equal as m allows.
[[nodiscard]] Schedule make_interleaved(const PipelineShape& shape);

// Looped BFS (Lamy-Poirier 2023, arXiv:2211.05953): all micro-batches through the first stage, then all through the
// second; the backwards the other way round, last micro-batch first. m in flight.
[[nodiscard]] Schedule make_looped_bfs(const PipelineShape& shape);

// 2 stages a device, in a V: device r owns stages r and 2p-1-r.

// ZB-V (Qi et al. 2023, section 6), the order drawn for F = I = W; p in flight.
[[nodiscard]] Schedule make_zb_v(const PipelineShape& shape);

// DualPipeV (DeepSeek-AI 2024, arXiv:2412.19437; V form of the DualPipe repository): pairs of a forward and a backward
// overlap; p + 1/2 in flight. Needs m >= 2p.
[[nodiscard]] Schedule make_dualpipe_v(const PipelineShape& shape);

// For evaluation: forwards only. `owners`: [stage], the device that runs it; each device takes all micro-batches
// through its first stage, then through its next.
[[nodiscard]] Schedule make_forward_only(std::span<const int> owners, int micro_batches);

// The training schedule called `name` (`pipeline.schedule`, `sluice schedule NAME`).
[[nodiscard]] Schedule make_schedule(std::string_view name, const PipelineShape& shape);
[[nodiscard]] std::span<const std::string> schedule_names();
[[nodiscard]] int default_virtual_stages(std::string_view name);
// On so many devices.
[[nodiscard]] int least_micro_batches(std::string_view name, int devices);

// The schedule with a REDUCE_GRAD for each stage directly after its last B or W. Requires: a validated schedule that
// has no REDUCE_GRAD yet.
[[nodiscard]] Schedule with_reductions(Schedule schedule);

}  // namespace sluice::pipeline
