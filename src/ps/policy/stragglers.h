// stragglers: how long workers are made to stall before they compute, to study uneven machines where there are none.
// A pure function of (seed, worker, step): the same in a run, in virtual time and in a simulation.
//   ec2, cedar   |N(mean, deviation)| of one of four normal distributions, drawn by their weights, at most 6.5 s: as
//                the experiments of the anytime project had them (github.com/thadikari/anytime, --induce)
//   exponential  shift + Exp(rate): the model of their analysis (Ferdinand et al., ICLR 2019)
// Threads: any. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ps/policy/push_record.h"

namespace sluice::ps {

struct StragglerOptions {
  std::string kind = "none";
  std::uint64_t seed = 0;
  double scale = 1;    // all times are multiplied by it
  double shift_s = 0;  // of "exponential"
  double mean_s = 1;   // likewise: 1 / rate
};

class Stragglers {
 public:
  explicit Stragglers(const StragglerOptions& options);

  // Of a worker before it computes in its step number `step`, from 0.
  [[nodiscard]] double stall_s(WorkerId worker, std::int64_t step) const;

 private:
  enum class Kind { kNone, kEc2, kCedar, kExponential };

  StragglerOptions options_;
  Kind kind_ = Kind::kNone;
};

[[nodiscard]] const std::vector<std::string>& straggler_names();

}  // namespace sluice::ps
