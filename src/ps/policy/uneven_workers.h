// uneven_workers: simulates the speed of uneven workers and their server under a policy, in virtual time and without
// training. It uses the policies (coordinator.h), stalls (stragglers.h), slices (slice_clock.h) and seeds of a run. But
// sending and merging take no time, and "amb" has P slices of int(B / P) examples, like the anytime project.
// Pure. Errors: ConfigError for values that do not fit together; messages name the options of `sluice simulate`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"

namespace sluice::ps {

struct UnevenRequest {
  std::string sync;
  int workers = 0;                          // this and the next two are required
  std::int64_t base_batch = 0;              // examples of a push; with "amb" the maximum
  std::vector<double> seconds_per_example;  // one for all workers, or [worker]
  std::optional<double> time_limit_s;       // with "amb", which needs this and the next
  std::optional<std::int64_t> partitions;
  std::optional<std::int64_t> staleness;  // with "ssp"; nothing: the preset's
  std::optional<int> quorum;              // with "quorum"; nothing: more than half
  std::string induce = "none";
  std::optional<double> shift_s;  // with "shifted-exponential"; nothing: the value of StragglerOptions
  std::optional<double> mean_s;   // with "shifted-exponential": mean of the added part
  std::uint64_t seed = 0;
  std::int64_t steps = 1000;  // number of updates
};

struct UnevenResult {
  std::int64_t steps = 0;
  std::int64_t pushes = 0;  // pushes in these updates
  std::int64_t examples = 0;
  std::int64_t least_examples = 0;  // fewest examples of a push
  std::int64_t most_examples = 0;
  Nanoseconds time = 0;
  Nanoseconds slowest = 0;                         // sum over updates of their longest computing time, with stalls
  Nanoseconds longest_push = 0;                    // longest computing time of a push, with stalls
  std::map<std::int64_t, std::int64_t> staleness;  // [staleness]: number of pushes

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
