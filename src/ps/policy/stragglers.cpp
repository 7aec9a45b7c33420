#include "ps/policy/stragglers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "core/text.h"

namespace sluice::ps {
namespace {

constexpr double kLongestStall = 6.5;

struct Normal {
  double mean;
  double deviation;
  double weight;
};
using Mixture = std::array<Normal, 4>;
constexpr Mixture kEc2{{{0, 0, 0.4}, {0, 0.4, 0.3}, {2, 0.3, 0.2}, {5, 0.3, 0.1}}};
constexpr Mixture kCedar{{{0, 0, 0.4}, {0.05, 0.04, 0.3}, {0.15, 0.03, 0.2}, {0.25, 0.03, 0.1}}};

double draw(const Mixture& mixture, RngStream& numbers) {
  double point = numbers.uniform();
  for (const Normal& normal : mixture) {
    point -= normal.weight;
    if (point < 0) return std::min(std::abs(normal.mean + normal.deviation * numbers.normal()), kLongestStall);
  }
  return 0;  // rounding can leave the sum of the weights slightly below 1
}

}  // namespace

Stragglers::Stragglers(const StragglerOptions& options) : options_(options) {
  const auto found = std::ranges::find(straggler_names(), options.kind);
  if (found == straggler_names().end())
    throw ConfigError("ps.induce=", options.kind, " is unknown; give one of ", join(straggler_names(), ", "));
  constexpr std::array kKinds{Kind::kNone, Kind::kEc2, Kind::kCedar, Kind::kExponential};  // as straggler_names()
  kind_ = kKinds.at(static_cast<std::size_t>(found - straggler_names().begin()));
  if (!(options.scale > 0) || !(options.shift_s >= 0) || !(options.mean_s >= 0))
    throw ConfigError("ps.induce: stall times must be at least 0 s and their scale above 0");
}

double Stragglers::stall_s(WorkerId worker, std::int64_t step) const {
  if (kind_ == Kind::kNone) return 0;
  const std::uint64_t key =
      derive_key(derive_key(options_.seed, hash_name("stall")), static_cast<std::uint64_t>(worker));
  RngStream numbers(derive_key(key, static_cast<std::uint64_t>(step)));
  switch (kind_) {
    case Kind::kNone: break;
    case Kind::kEc2: return options_.scale * draw(kEc2, numbers);
    case Kind::kCedar: return options_.scale * draw(kCedar, numbers);
    case Kind::kExponential:
      return options_.scale * (options_.shift_s - options_.mean_s * std::log1p(-numbers.uniform()));
  }
  return 0;
}

const std::vector<std::string>& straggler_names() {
  static const std::vector<std::string> names{"none", "ec2", "cedar", "exponential"};
  return names;
}

}  // namespace sluice::ps
