#include "app/commands/tune_batch.h"

#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "core/text_table.h"
#include "train/setup/run_state.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using train::BatchTuning;

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

std::string percent(double part) { return concat(fixed(100 * part, 1), " %"); }

}  // namespace

void BatchArguments::add_to(CLI::App& command) {
  command.add_flag("--allow-batch-change", options.is_allowed,
                   "Also search for the global batch with the highest goodput, and its learning rate. This changes "
                   "what is learned; the assumptions are printed");
  command
      .add_option("--noise-from", noise_from,
                  "Run directory with a recorded gradient noise scale (train.noise_scale_every_steps). Default: a "
                  "short run measures it")
      ->type_name("RUN_DIR")
      ->check(not_empty);
  command
      .add_option("--batches", range,
                  "Range of global batches; default: from a quarter of the present one to four times it")
      ->type_name("LEAST:MOST")
      ->check(not_empty);
  std::vector<std::string> rules(tune::rate_rule_names().begin(), tune::rate_rule_names().end());
  command
      .add_option("--rate-rule", options.rate_rule,
                  "How the learning rate scales: with the batch, its square root, AdaScale's gain, or that gain's "
                  "square root (for Adam). Default: AdaScale's gain; its square root for rmsprop, adam, adamw and "
                  "lamb")
      ->check(CLI::IsMember(rules));
}

train::BatchTuneOptions BatchArguments::parse() const {
  train::BatchTuneOptions parsed = options;
  if (!options.is_allowed && (!noise_from.empty() || !range.empty() || !options.rate_rule.empty())) {
    throw ConfigError("--noise-from, --batches and --rate-rule need --allow-batch-change; add it or remove them");
  }
  parsed.noise_from = noise_from;
  if (range.empty()) return parsed;
  const std::size_t colon = range.find(':');
  const auto least = whole_number(std::string_view(range).substr(0, colon));
  const auto most = colon == std::string::npos ? least : whole_number(std::string_view(range).substr(colon + 1));
  if (!least || !most || *least > *most) {
    throw ConfigError("--batches ", printable(range),
                      " is not a range of batches; give two whole numbers of at least 1, such as 32:512");
  }
  parsed.least = *least;
  parsed.most = *most;
  return parsed;
}

ordered_json json_of_batch(const BatchTuning& tuning) {
  const auto& proposal = tuning.proposal;
  ordered_json choices = ordered_json::array();
  for (std::size_t i = 0; i < proposal.choices.size(); ++i) {
    const tune::BatchChoice& choice = proposal.choices[i];
    choices.push_back({{"batch", choice.batch},
                       {"step_s", choice.step_s},
                       {"samples_per_s", choice.samples_per_s},
                       {"efficiency", choice.efficiency},
                       {"goodput", choice.goodput},
                       {"lr", choice.rate},
                       {"is_extrapolated", tuning.plans[i].is_extrapolated},
                       {"plan", train::plan_json(tuning.plans[i].best.plan)}});
  }
  return {{"present", proposal.present.batch},
          {"proposed", proposal.best.batch},
          {"lr", proposal.best.rate},
          {"changed", tuning.changes()},
          {"noise_scale", tuning.noise.samples},
          {"noise_scale_error", tuning.noise.error},
          {"proposed_at_less_noise", proposal.best_at_less_noise},
          {"proposed_at_more_noise", proposal.best_at_more_noise},
          {"impossible", proposal.impossible},
          {"choices", choices},
          {"assumptions", tuning.sentences}};
}

std::string text_of_batch(const BatchTuning& tuning, const std::string& out) {
  const auto& proposal = tuning.proposal;
  std::vector<TextRow> rows{{"batch", "predicted ms", "samples/s", "efficiency", "goodput", "learning rate", ""}};
  for (std::size_t i = 0; i < proposal.choices.size(); ++i) {
    const tune::BatchChoice& choice = proposal.choices[i];
    std::vector<std::string> marks;
    if (choice.batch == proposal.present.batch) marks.emplace_back("present");
    if (choice.batch == proposal.best.batch) marks.emplace_back("proposed");
    if (tuning.plans[i].is_extrapolated) marks.emplace_back("extrapolated");
    rows.push_back({std::to_string(choice.batch), fixed(choice.step_s * 1e3, 1), fixed(choice.samples_per_s, 1),
                    percent(choice.efficiency), fixed(choice.goodput, 1), concat(choice.rate), join(marks, ", ")});
  }
  std::string text = concat(
      "global batches by goodput (samples per second, weighted by their value relative to the present "
      "batch); gradient noise scale ",
      fixed(tuning.noise.samples, 1), " +- ", fixed(tuning.noise.error, 1), " samples:\n\n",
      text_table(rows, std::array{Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
                                  Align::kRight, Align::kLeft}),
      "\n");
  for (const std::string& sentence : tuning.sentences) text += concat("\n- ", sentence);
  const bool changes = tuning.changes();
  return text + (changes ? concat("\n\n", out, " has train.global_batch = ", proposal.best.batch, " (was ",
                                  proposal.present.batch, ") and train.lr = ", proposal.best.rate, " (was ",
                                  proposal.present.rate,
                                  "), because of --allow-batch-change. The plans below are for that batch.\n\n")
                         : concat("\n\n", out, " keeps train.global_batch = ", proposal.present.batch,
                                  " and train.lr = ", proposal.present.rate, ".\n\n"));
}

}  // namespace sluice::app
