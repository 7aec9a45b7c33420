// uneven_workers: how fast uneven workers and their server get on under a policy, in virtual time and without any
// training: the policies (coordinator.h), stalls (stragglers.h) and slices (slice_clock.h) of a run, on a clock in
// whole nanoseconds. With the same seed a worker stalls as in a run in virtual time. Two things are simpler than there:
//   sending and merging take no time
//   "amb" has P slices of int(B / P) examples, as the anytime project cuts them; a run cuts the whole batch into P
//   nearly equal ones
// Pure. Errors: ConfigError for values that do not go together; its sentences name the options of `sluice simulate`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"

namespace sluice::ps {

struct UnevenRequest {
  std::string sync;                         // one of uneven_sync_names()
  int workers = 0;                          // this and the next two have to be set
  std::int64_t base_batch = 0;              // examples of a push; of "amb" at most so many
  std::vector<double> seconds_per_example;  // one for all workers, or [worker]
  std::optional<double> time_limit_s;       // of "amb", which needs this and the next
  std::optional<std::int64_t> partitions;
  std::optional<std::int64_t> staleness;  // of "ssp"; nothing: as its preset
  std::optional<int> quorum;              // of "quorum"; nothing: more than half
  std::string induce = "none";            // one of induce_names()
  std::optional<double> shift_s;          // of "shifted-exponential"; nothing: as StragglerOptions
  std::optional<double> mean_s;           // likewise: of what is added to the shift
  std::uint64_t seed = 0;
  std::int64_t steps = 1000;  // updates of the server
};

struct UnevenResult {
  std::int64_t steps = 0;
  std::int64_t pushes = 0;          // that are in them
  std::int64_t examples = 0;        // of these
  std::int64_t least_examples = 0;  // of a push
  std::int64_t most_examples = 0;
  Nanoseconds time = 0;          // when the last update was made
  Nanoseconds slowest = 0;       // sum over updates of the longest computing, stall included, among their pushes
  Nanoseconds longest_push = 0;  // of all of them, stall included
  std::map<std::int64_t, std::int64_t> staleness;  // updates between the weights of a push and its own: pushes

  [[nodiscard]] double steps_per_s() const { return per_second(static_cast<double>(steps), time); }
  [[nodiscard]] double examples_per_s() const { return per_second(static_cast<double>(examples), time); }
  [[nodiscard]] double step_s() const { return to_s(time) / static_cast<double>(steps); }
  [[nodiscard]] double slowest_worker_s() const { return to_s(slowest) / static_cast<double>(steps); }
  [[nodiscard]] double examples_of_a_push() const {
    return static_cast<double>(examples) / static_cast<double>(pushes);
  }
};

[[nodiscard]] UnevenResult simulate_uneven_workers(const UnevenRequest& request);

[[nodiscard]] const std::vector<std::string>& uneven_sync_names();
[[nodiscard]] const std::vector<std::string>& induce_names();

}  // namespace sluice::ps
