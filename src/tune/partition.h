// partition: the best contiguous cut of a list of layers into stages, from their measured costs. Pure.
// Exact: it minimises the time of the slowest device, which bounds a pipeline's throughput, among the cuts that fit the
// memory. With one stage a device by dynamic programming over (layers, stages), and among equal cuts the most even one
// (least sum of squared stage times), then the one whose stages send least. With several a device by branch and bound,
// since the stages of a device share its time and memory. Of that cut and the one with the least slowest stage the one
// that ends its step sooner (predict.h); where links are known to take time for bytes, a cut that sends less with
// stages nearly as fast takes part as well.
// Recomputation adds a stage's forward time to its backward and takes less memory: where it is left open, each stage
// has it only if the best cut needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "pipeline/schedule/action.h"
#include "tune/predict.h"

namespace sluice::tune {

enum class Recompute { kNone, kLayer, kOpen };

struct CutRules {
  double micro_batch = 1;          // samples, on average
  std::uint64_t most_samples = 1;  // of a micro-batch
  Recompute recompute = Recompute::kNone;
  std::vector<bool> recompute_of_stage;  // in the place of `recompute`; empty: by that
  std::uint64_t memory_limit = 0;        // bytes of a device; 0: none
  std::optional<Partition> partition;    // only recomputation is left to choose; nothing: any cut
  bool shares_memory = true;             // device_bytes() (memory.h)
  StepOverheads overheads;
};

// Stages that are slower than the least slowest one by no more than this may have cheaper borders.
inline constexpr double kNearlyEqual = 0.05;

// Of the search over devices that have several stages: about a second with a memory limit, a tenth without.
inline constexpr int kMostTries = 500'000;

struct Cut {
  Partition partition;
  std::vector<bool> recompute;  // [stage]
  bool fits = true;             // false: no cut fits; this is the one whose largest device needs least
  bool is_proven = true;        // false: the search was given up after kMostTries, a better one may exist
};

// For a schedule's devices, stages and order. Requires: a validated training schedule; stages <= costs.size(); a
// partition in the rules covers the layers in as many stages.
[[nodiscard]] Cut best_cut(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const CutRules& rules);

// The cut whose largest stage needs least memory (of stages on one device, each is looked at alone). Where
// recomputation is open a stage recomputes if it needs less so.
[[nodiscard]] Cut smallest_cut(std::span<const LayerCost> costs, const pipeline::Schedule& schedule,
                               const CutRules& rules);

// Seconds per micro-batch, forward and backward, of each stage under a partition. recompute: [stage]; empty: none does.
[[nodiscard]] std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch,
                                              const Partition& partition, const std::vector<bool>& recompute = {});
// The same of each device of a plan: of all its stages.
[[nodiscard]] std::vector<double> device_times(std::span<const LayerCost> costs, double micro_batch, const Plan& plan);

// Bytes that each device holds at most. recompute: [stage]; empty: none does.
[[nodiscard]] std::vector<std::uint64_t> device_peaks(std::span<const LayerCost> costs,
                                                      const pipeline::Schedule& schedule, const Partition& partition,
                                                      const std::vector<bool>& recompute, std::uint64_t samples,
                                                      bool shares_memory);

// [stage]: the most that it keeps between actions, live_bytes() of all its micro-batches in flight.
[[nodiscard]] std::vector<std::uint64_t> live_peaks(std::span<const LayerCost> costs,
                                                    const pipeline::Schedule& schedule, const Partition& partition,
                                                    const std::vector<bool>& recompute, std::uint64_t samples);

}  // namespace sluice::tune
