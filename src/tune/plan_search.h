// plan_search: finds the plans with the most samples per second by predicted step time (predict.h). A family is a plan
// without its cut. The result is the best cut of each of the ten best families. Families and partial cuts are skipped
// if their lower bound (cut_bound.h) exceeds the tenth best. While time is left, cuts are first improved by moving
// borders, then searched exactly (both cut_search.h). Families with few cuts are searched exactly at once.
// Pure, except for the clock. Lists may be unsorted and contain duplicates. Units: seconds, bytes, samples.
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
  std::vector<LayerCost> layers;  // of the whole model, including frozen ones
  StepOverheads overheads;        // borders: one per stage, or empty
};

struct ScheduleChoice {
  std::string name = "1f1b";
  int virtual_stages = 1;
  std::string schedule_text;  // as Plan::schedule_text; replaces the named schedule
};

// The allowed plans. A list with one entry pins a choice.
struct SearchSpace {
  // Costs for a plan with one layer per stage. Called once per schedule and number of devices, replicas and chunks, on
  // which alone the result may depend. Errors it throws end the search.
  std::function<SlotCosts(const Plan& uncut)> costs_of;
  int most_slots = 1;
  int processes = 1;                // machines; each one runs `replicas`
  std::vector<int> devices = {1};   // per replica: pipeline.stages
  std::vector<int> replicas = {1};  // per process
  std::vector<int> chunks = {1};
  std::vector<std::int64_t> batches = {1};  // samples per step over all replicas
  std::vector<ScheduleChoice> schedules = {ScheduleChoice{}};
  // kOpen includes the other rules. With a memory limit, a stage then recomputes only if its device needs the room.
  std::vector<Recompute> recompute = {Recompute::kNone};
  std::optional<Partition> partition;
  int frozen_layers = 0;
  std::uint64_t memory_limit = 0;          // bytes per slot; 0: no limit
  bool shares_memory = true;               // as for device_bytes() (memory.h)
  std::int64_t least_micro_batch = 1;      // samples; batch normalization needs several
  bool needs_equal_micro_batches = false;  // the batch must be divisible by all micro-batches
};

struct SearchLimit {
  double seconds = 0;
  std::function<double()> clock;  // seconds since any start
};

struct Candidate {
  Plan plan;
  StepPrediction step;
  double samples_per_s = 0;
  std::vector<std::uint64_t> device_bytes;  // as estimate_device_bytes() (memory_model.h)
};

// Families that were rejected for one reason.
struct Refusal {
  Plan plan;        // closest example; without a partition if none was chosen
  std::string why;  // for the example: "stage 0 needs 31.2 GiB of 24.0 GiB"
  std::int64_t count = 0;
  bool is_of_memory = false;
};

struct SearchResult {
  // Up to ten, best first. Ties (nine digits) are ordered by fewer chunks, then by fewer slots.
  std::vector<Candidate> best;
  std::vector<Refusal> refusals;
  // No plan of the space is faster than the first or belongs in this list instead of another.
  bool is_proven = true;
  std::int64_t tried = 0;   // plans with a predicted step
  std::int64_t pruned = 0;  // families and partial cuts skipped by a bound
};

inline constexpr int kMostCandidates = 10;

[[nodiscard]] SearchResult search_plans(const SearchSpace& space, const SearchLimit& limit = {});

// The number of micro-batches with the least time, from 1 to `samples`, if stages are equal and n samples take a + s n:
// (m + p - 1) (a + s samples / m) is least at m = sqrt((p - 1) s samples / a).
[[nodiscard]] int first_guess_chunks(int devices, double samples, const AffineCost& slowest_stage);

}  // namespace sluice::tune
