// stragglers: artificial stalls of workers, to study uneven machines on even ones. A pure function of (seed, worker,
// step).
//   ec2, cedar   |N(mean, deviation)| of one of four normal distributions, drawn by their weights, at most 6.5 s: the
//                distributions of the anytime project's experiments (github.com/thadikari/anytime, --induce)
//   exponential  shift + Exp(rate): the model of their analysis (Ferdinand et al., ICLR 2019)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ps/policy/push_record.h"

namespace sluice::ps {

struct StragglerOptions {
  std::string kind = "none";
  std::uint64_t seed = 0;
  double scale = 1;    // factor of all times
  double shift_s = 0;  // with "exponential"
  double mean_s = 1;   // with "exponential": 1 / rate
};

class Stragglers {
 public:
  explicit Stragglers(const StragglerOptions& options);

  // Stall of a worker before it computes its step number `step`, from 0.
  [[nodiscard]] double stall_s(WorkerId worker, std::int64_t step) const;

 private:
  enum class Kind { kNone, kEc2, kCedar, kExponential };

  StragglerOptions options_;
  Kind kind_ = Kind::kNone;
};

[[nodiscard]] const std::vector<std::string>& straggler_names();

}  // namespace sluice::ps
