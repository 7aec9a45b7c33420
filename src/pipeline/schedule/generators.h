// generators: pure functions from the shape of a pipeline to a schedule. docs/reference/schedules.md compares their
// bubble, memory and source.
// Letters: p devices, m micro-batches, V virtual stages per device, device r from 0; S = p*V stages in all.
// Micro-batches in flight are those whose activations a device keeps (inspect.h).
// Errors: ConfigError for an unknown name, or a shape that the schedule does not support.
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
  std::optional<int> virtual_stages;  // per device; default: default_virtual_stages(name)
};

// GPipe (Huang et al. 2019, arXiv:1811.06965): every forward, then every backward in the same order; m in flight.
[[nodiscard]] Schedule make_gpipe(const PipelineShape& shape);

// 1F1B (PipeDream-Flush; Narayanan et al. 2021, arXiv:2104.04473): p-1-r forwards, then one forward and one backward
// in turn, then the remaining backwards; min(m, p-r) in flight.
[[nodiscard]] Schedule make_1f1b(const PipelineShape& shape);

// 1F1B with 2(p-1-r) forwards first, to hide the latency of a hop; min(m, 2(p-r)-1) in flight. ("1F1B-overlap-friendly"
// of Alpa; Zhuang et al. 2022, arXiv:2211.05322.)
[[nodiscard]] Schedule make_eager_1f1b(const PipelineShape& shape);

// Zero bubble (Qi et al. 2023, arXiv:2401.10241): splits backward into I and W, and fills bubbles with W. H1 keeps the
// memory of 1F1B's first device on all devices: p in flight. H2 starts with 2(p-1-r) forwards: 2p-1 in flight.
[[nodiscard]] Schedule make_zb_h1(const PipelineShape& shape);
[[nodiscard]] Schedule make_zb_h2(const PipelineShape& shape);

// Interleaved 1F1B (Narayanan et al. 2021, section 2.2): micro-batches in groups of about p; a device takes a group
// through its first stage, then its second, and so on. Groups are equal if p divides m, otherwise as equal as m allows.
[[nodiscard]] Schedule make_interleaved(const PipelineShape& shape);

// Looped BFS (Lamy-Poirier 2023, arXiv:2211.05953): all micro-batches through the first stage, then all through the
// second; backwards in reverse, last micro-batch first. m in flight.
[[nodiscard]] Schedule make_looped_bfs(const PipelineShape& shape);

// ZB-V (Qi et al. 2023, section 6), in the order for F = I = W; p in flight.
[[nodiscard]] Schedule make_zb_v(const PipelineShape& shape);

// DualPipeV (DeepSeek-AI 2024, arXiv:2412.19437; V form of the DualPipe repository): pairs of a forward and a backward
// overlap; p + 1/2 in flight. Requires m >= 2p.
[[nodiscard]] Schedule make_dualpipe_v(const PipelineShape& shape);

// Evaluation: a device takes all micro-batches through its first stage, then through its next. owners: [stage].
[[nodiscard]] Schedule make_forward_only(std::span<const int> owners, int micro_batches);

// `name`: as in `pipeline.schedule` and `sluice schedule NAME`.
[[nodiscard]] Schedule make_schedule(std::string_view name, const PipelineShape& shape);
[[nodiscard]] std::span<const std::string> schedule_names();
[[nodiscard]] int default_virtual_stages(std::string_view name);
[[nodiscard]] int least_micro_batches(std::string_view name, int devices);

// Adds a REDUCE_GRAD for each stage directly after its last B or W. Requires: a validated schedule without REDUCE_GRAD.
[[nodiscard]] Schedule with_reductions(Schedule schedule);

}  // namespace sluice::pipeline
