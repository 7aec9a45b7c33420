#include "tune/batch_size.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/check.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::tune {
namespace {

// [RateRule]
const std::array<std::string, 4> kRateRuleNames{"linear", "sqrt", "adascale", "adamscale"};

void check_noise(double phi) { check(phi >= 0, "a non-negative noise scale"); }
void check_samples(double batch) { check(batch > 0 && std::isfinite(batch), "a finite batch size above 0"); }

void check_batch_request(const BatchRequest& request) {
  check(request.step_seconds != nullptr, "BatchRequest::step_seconds is set");
  const NoiseScale& noise = request.noise;
  check(noise.samples >= 0 && noise.error >= 0 && std::isfinite(noise.samples + noise.error),
        "a finite, non-negative noise scale and error");
  if (request.batch < 1) throw ConfigError("the current batch size is ", request.batch, "; it must be at least 1");
  if (!(request.rate > 0) || !std::isfinite(request.rate))
    throw ConfigError("the learning rate of the current batch is ", request.rate, "; it must be above 0");
  for (const std::int64_t batch : request.batches)
    if (batch < 1) throw ConfigError("candidate batch size ", batch, " is below 1; give larger ones");
}

BatchChoice choice_of(const BatchRequest& request, std::int64_t batch, double seconds, double phi) {
  const auto base = static_cast<double>(request.batch);
  const auto samples = static_cast<double>(batch);
  const double efficiency = statistical_efficiency(phi, base, samples);
  return {.batch = batch,
          .step_s = seconds,
          .samples_per_s = samples / seconds,
          .efficiency = efficiency,
          .goodput = samples / seconds * efficiency,
          .rate = request.rate * rate_factor(request.rule, phi, base, samples)};
}

BatchChoice best_of(const std::vector<BatchChoice>& choices) {
  return *std::ranges::max_element(choices, {}, &BatchChoice::goodput);
}

std::int64_t best_batch_at(const BatchRequest& request, const std::vector<BatchChoice>& choices, double phi) {
  std::vector<BatchChoice> others;
  for (const BatchChoice& choice : choices) others.push_back(choice_of(request, choice.batch, choice.step_s, phi));
  return best_of(others).batch;
}

std::string outcome(const BatchProposal& proposal) {
  const BatchChoice &best = proposal.best, &present = proposal.present;
  if (best.batch == present.batch) {
    return concat("The present batch of ", present.batch, " has the largest goodput, ", fixed(present.goodput, 1),
                  " samples/s.");
  }
  return concat("A batch of ", best.batch, " with learning rate ", best.rate,
                " has the largest goodput: ", fixed(best.goodput, 1),
                " samples/s that are worth those of the present batch of ", present.batch, ", ",
                fixed(best.goodput / present.goodput, 2), " times as many. It runs ", fixed(best.samples_per_s, 1),
                " samples/s instead of ", fixed(present.samples_per_s, 1), ", each worth ", fixed(best.efficiency, 2),
                " of one now.");
}

std::string noise_taken(const BatchRequest& request, const BatchProposal& proposal) {
  std::string text =
      concat("It takes the noise scale for ", fixed(request.noise.samples, 1), " +- ", fixed(request.noise.error, 1),
             " samples at every batch and rate, now and later; it usually grows while the loss falls.");
  const std::int64_t less = proposal.best_at_less_noise, more = proposal.best_at_more_noise;
  if (less == more) return concat(text, " Within one standard error the best batch stays the same.");
  return concat(text, " One standard error less makes ", less, " the best batch, one more ", more, ".");
}

std::string rule_taken(const BatchRequest& request) {
  const std::string text = concat("It takes the learning rate to follow each batch by the rule '",
                                  name_of(request.rule), "', and that rule to fit the optimizer: ");
  switch (request.rule) {
    case RateRule::kLinear: return concat(text, "in proportion to the batch, for SGD well below the noise scale.");
    case RateRule::kSquareRoot: return concat(text, "to the square root of the batch, for Adam.");
    case RateRule::kAdaScale: return concat(text, "AdaScale's gain, for SGD.");
    case RateRule::kAdamScale: return concat(text, "the square root of AdaScale's gain, for Adam.");
  }
  throw BugError("a learning-rate rule without a description");
}

void add_warnings(const BatchRequest& request, BatchProposal& proposal) {
  constexpr double kDoubtful = 0.5;  // relative error of the noise scale
  constexpr double kTooFast = 1.5;   // linear rate relative to AdaScale's
  const BatchChoice &best = proposal.best, &present = proposal.present;
  const NoiseScale& noise = request.noise;
  if (noise.error > kDoubtful * noise.samples)
    proposal.sentences.emplace_back("The noise scale is hardly known; more steps make it surer.");
  const bool is_at_edge = best.batch == proposal.choices.front().batch || best.batch == proposal.choices.back().batch;
  if (is_at_edge && proposal.choices.size() > 1) {
    const char* const way = best.batch == proposal.choices.back().batch ? "larger" : "smaller";
    proposal.sentences.push_back(
        concat(best.batch, " is the end of the batches that can run; a ", way, " one may be better still."));
  }
  const double gain = best.efficiency * static_cast<double>(best.batch) / static_cast<double>(present.batch);
  if (request.rule == RateRule::kLinear && best.rate > kTooFast * gain * request.rate) {
    proposal.sentences.push_back(concat("The linear rule gives ", best.batch, " a rate of ", best.rate, ", AdaScale ",
                                        gain * request.rate,
                                        ": so far beyond the noise scale a linear rate may diverge."));
  }
  if (proposal.impossible.empty()) return;
  std::vector<std::string> words;
  for (const std::int64_t batch : proposal.impossible) words.push_back(std::to_string(batch));
  proposal.sentences.push_back(concat("Left out, for no time of a step is known: ", join(words, ", "), "."));
}

std::vector<std::int64_t> spread(std::int64_t first, std::int64_t last, int count) {
  std::vector<std::int64_t> numbers;
  const double ratio = static_cast<double>(last) / static_cast<double>(first);
  for (int i = 0; i < count; ++i) {
    const double number = static_cast<double>(first) * std::pow(ratio, static_cast<double>(i) / (count - 1));
    numbers.push_back(std::clamp<std::int64_t>(std::llround(number), first, last));
  }
  const auto repeated = std::ranges::unique(numbers);
  numbers.erase(repeated.begin(), repeated.end());
  return numbers;
}

}  // namespace

double statistical_efficiency(double phi, double base, double batch) {
  check_noise(phi);
  check_samples(base);
  check_samples(batch);
  return std::isinf(phi) ? 1.0 : (phi + base) / (phi + batch);
}

std::span<const std::string> rate_rule_names() { return kRateRuleNames; }

RateRule rate_rule_of(std::string_view name) {
  const auto found = std::ranges::find(kRateRuleNames, name);
  if (found == kRateRuleNames.end()) {
    throw ConfigError("unknown rule '", printable(name),
                      "' for the learning rate; choose one of: ", join(kRateRuleNames, ", "),
                      did_you_mean(name, kRateRuleNames));
  }
  return static_cast<RateRule>(found - kRateRuleNames.begin());
}

std::string_view name_of(RateRule rule) { return kRateRuleNames.at(static_cast<std::size_t>(rule)); }

double rate_factor(RateRule rule, double phi, double base, double batch) {
  const double scale = batch / base;
  const double gain = scale * statistical_efficiency(phi, base, batch);  // AdaScale's gain with phi = tr(Sigma) / |G|^2
  switch (rule) {
    case RateRule::kLinear: return scale;
    case RateRule::kSquareRoot: return std::sqrt(scale);
    case RateRule::kAdaScale: return gain;
    case RateRule::kAdamScale: return std::sqrt(gain);
  }
  throw BugError("a learning-rate rule that is not implemented");
}

std::vector<std::int64_t> batches_in(const BatchRange& range) {
  check(range.multiple >= 1 && range.count >= 2, "a multiple of at least 1 and a count of at least 2");
  const std::int64_t first = std::max<std::int64_t>(divided_up(range.least, range.multiple), 1);
  const std::int64_t last = range.most / range.multiple;
  if (first > last) {
    throw ConfigError("no multiple of ", range.multiple, " lies between ", range.least, " and ", range.most,
                      "; widen the range of batches");
  }
  std::vector<std::int64_t> batches;
  if (last - first < range.count) {
    for (std::int64_t number = first; number <= last; ++number) batches.push_back(number);
  } else {
    batches = spread(first, last, range.count);
  }
  for (std::int64_t& batch : batches) batch *= range.multiple;
  return batches;
}

BatchProposal propose_batch(const BatchRequest& request) {
  check_batch_request(request);
  std::vector<std::int64_t> batches = request.batches;
  batches.push_back(request.batch);
  std::ranges::sort(batches);
  const auto repeated = std::ranges::unique(batches);
  batches.erase(repeated.begin(), repeated.end());

  BatchProposal proposal;
  for (const std::int64_t batch : batches) {
    const double seconds = request.step_seconds(batch);
    check(seconds > 0, "a step time above 0");
    if (std::isinf(seconds)) {
      if (batch == request.batch) throw ConfigError("the step time of the current batch ", batch, " was not measured");
      proposal.impossible.push_back(batch);
      continue;
    }
    proposal.choices.push_back(choice_of(request, batch, seconds, request.noise.samples));
    if (batch == request.batch) proposal.present = proposal.choices.back();
  }
  proposal.best = best_of(proposal.choices);
  const NoiseScale& noise = request.noise;
  proposal.best_at_less_noise = best_batch_at(request, proposal.choices, std::max(0.0, noise.samples - noise.error));
  proposal.best_at_more_noise = best_batch_at(request, proposal.choices, noise.samples + noise.error);
  proposal.sentences = {outcome(proposal), noise_taken(request, proposal), rule_taken(request),
                        "Batch-norm's statistics, Adam's moments and how well the result generalizes are not in it."};
  add_warnings(request, proposal);
  return proposal;
}

}  // namespace sluice::tune
