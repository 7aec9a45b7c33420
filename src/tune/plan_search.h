// plan_search: the plan with the most samples a second, by the predicted time of its step (predict.h).
// A family is what a plan is but for its cut: devices, replicas, schedule, chunks, batch, rule of recomputation. Each
// family has one best cut; the result is the best cuts of the best ten families. Families, and parts of cuts, whose
// lower bound (cut_bound.h) is beyond the tenth best are not looked at. A cut is searched by moving its borders, then
// exactly, by branch and bound (both cut_search.h), as long as time is left; where there are few, exactly at once.
// Not here: measuring the costs; which numbers of chunks are worth a look (first_guess_chunks() is a start).
// Pure but for the clock that is handed in. Lists may be in any order and repeat themselves. Units: seconds, bytes,
// samples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/partition.h"
#include "tune/predict.h"

namespace sluice::tune {

struct SlotCosts {
  std::vector<LayerCost> layers;  // of the whole model, frozen ones too
  StepOverheads overheads;        // its borders: one a stage, or none
};

struct ScheduleChoice {
  std::string name = "1f1b";
  int virtual_stages = 1;     // a device
  std::string schedule_text;  // Plan::schedule_text: the schedule is this one
};

// What a plan may be. A choice that is pinned is a list of one.
struct SearchSpace {
  // Of a plan whose cut is not decided yet (each stage has one layer): devices that work at the same time have fewer
  // threads each, and a schedule says between which devices its borders lie. Asked once for each number of devices,
  // replicas and chunks with each schedule; may not depend on anything else. Errors that it throws end the search.
  std::function<SlotCosts(const Plan& uncut)> costs_of;
  int most_slots = 1;                       // local devices
  int processes = 1;                        // machines: the replicas of each count
  std::vector<int> devices = {1};           // of a replica: pipeline.stages
  std::vector<int> replicas = {1};          // local ones
  std::vector<int> chunks = {1};            // micro-batches of a replica
  std::vector<std::int64_t> batches = {1};  // samples of a step over all replicas
  std::vector<ScheduleChoice> schedules = {ScheduleChoice{}};
  // With kOpen and a limit of memory a stage recomputes where its device has no room otherwise: no choice in which
  // fewer stages do has room. The other rules are part of that one.
  std::vector<Recompute> recompute = {Recompute::kNone};
  std::optional<Partition> partition;  // pinned
  int frozen_layers = 0;
  std::uint64_t memory_limit = 0;          // bytes of a slot; 0: none
  bool shares_memory = true;               // device_bytes() (memory.h)
  std::int64_t least_micro_batch = 1;      // samples: normalisation over a batch needs some
  bool needs_equal_micro_batches = false;  // the batch is divisible by all micro-batches
};

// Without a clock there is no limit.
struct SearchLimit {
  double seconds = 0;
  std::function<double()> clock;  // seconds since any start
};

// A plan that has room.
struct Candidate {
  Plan plan;
  StepPrediction step;
  double samples_per_s = 0;                 // over all processes
  std::vector<std::uint64_t> device_bytes;  // estimate_device_bytes() (memory_model.h)
};

// Families that are not among the best, for one reason.
struct Refusal {
  Plan plan;               // an example: what comes nearest; without a partition if none was decided
  std::string why;         // of the example: "stage 0 needs 31.2 GiB of 24.0 GiB"
  std::int64_t count = 0;  // families
  bool is_of_memory = false;
};

struct SearchResult {
  // Up to ten, best first. Of those that are equally fast to nine digits, fewer chunks first, then fewer slots.
  std::vector<Candidate> best;
  std::vector<Refusal> refusals;  // most families first
  // No plan of the space is faster than the first, or belongs here instead of another.
  bool is_proven = true;
  std::int64_t tried = 0;   // plans whose step was predicted
  std::int64_t pruned = 0;  // families, and parts of cuts, that a bound ruled out unseen
};

inline constexpr int kMostCandidates = 10;

[[nodiscard]] SearchResult search_plans(const SearchSpace& space, const SearchLimit& limit = {});

// The number of micro-batches in which a replica's `samples` of a step take least time on a pipeline with equal stages,
// if a micro-batch of size n takes a + s n on each: (m + p - 1) (a + s samples / m) is least at
// m = sqrt((p - 1) s samples / a). From 1 to `samples`.
[[nodiscard]] int first_guess_chunks(int devices, double samples, const AffineCost& slowest_stage);

}  // namespace sluice::tune
