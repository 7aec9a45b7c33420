// partition: finds the best contiguous cut of layers into stages from their measured costs. Pure.
// It minimizes the time of the slowest device, exactly, among the cuts that fit in memory. With one stage per device:
// dynamic programming over (layers, stages); ties go to the least sum of squared stage times, then to the least bytes
// sent. With several: branch and bound, because stages share a device's time and memory.
// It returns the candidate with the shortest predicted step (predict.h): this cut; the cut with the fastest slowest
// stage; and, if transfer times are known, a nearly as fast cut that sends less. Open recomputation is used only if
// the best cut needs it.
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
  std::uint64_t most_samples = 1;  // in a micro-batch
  Recompute recompute = Recompute::kNone;
  std::vector<bool> recompute_of_stage;  // replaces `recompute`; empty: unused
  std::uint64_t memory_limit = 0;        // bytes per device; 0: no limit
  std::optional<Partition> partition;    // if set, only recomputation is chosen
  bool shares_memory = true;             // as for device_bytes() (memory.h)
  StepOverheads overheads;
};

// Stages may be slower than the least slowest one by this share if their borders are cheaper.
inline constexpr double kNearlyEqual = 0.05;

// Limit of the search with several stages per device: about 1 s with a memory limit, 0.1 s without.
inline constexpr int kMostTries = 500'000;

struct Cut {
  Partition partition;
  std::vector<bool> recompute;
  bool fits = true;       // false: no cut fits; this one has the smallest peak
  bool is_proven = true;  // false: the search gave up after kMostTries; a better cut may exist
};

// Cuts for the schedule's devices and stages. Requires: a validated training schedule; stages <= costs.size(); a
// partition in the rules covers the layers in as many stages.
[[nodiscard]] Cut best_cut(std::span<const LayerCost> costs, const pipeline::Schedule& schedule, const CutRules& rules);

// The cut whose largest stage needs the least memory; each stage counts alone and recomputes if that needs less.
[[nodiscard]] Cut smallest_cut(std::span<const LayerCost> costs, const pipeline::Schedule& schedule,
                               const CutRules& rules);

// Seconds per micro-batch, forward and backward, of each stage. recompute: [stage]; empty: none recomputes.
[[nodiscard]] std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch,
                                              const Partition& partition, const std::vector<bool>& recompute = {});
[[nodiscard]] std::vector<double> device_times(std::span<const LayerCost> costs, double micro_batch, const Plan& plan);

[[nodiscard]] std::vector<std::uint64_t> device_peaks(std::span<const LayerCost> costs,
                                                      const pipeline::Schedule& schedule, const Partition& partition,
                                                      const std::vector<bool>& recompute, std::uint64_t samples,
                                                      bool shares_memory);

// [stage]: peak bytes between actions, as live_bytes() of all its micro-batches in flight.
[[nodiscard]] std::vector<std::uint64_t> live_peaks(std::span<const LayerCost> costs,
                                                    const pipeline::Schedule& schedule, const Partition& partition,
                                                    const std::vector<bool>& recompute, std::uint64_t samples);

}  // namespace sluice::tune
