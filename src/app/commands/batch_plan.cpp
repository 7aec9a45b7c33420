#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "app/options.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/layer_cost.h"
#include "core/text.h"
#include "core/text_table.h"
#include "profiler/layer_profile.h"
#include "ps/policy/batch_plan.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;

struct BatchPlanArguments {
  ps::BatchPlanRequest request;
  std::optional<int> small;  // nullopt: list every number of small workers
  std::string extra_time, a, b;
  std::string profile, small_profile;
  OutputArguments output;
};

struct Row {
  int small_workers = 0;
  ps::BatchPlan plan;
  std::string refusal;
};

ordered_json json_of_plans(const ps::BatchPlanRequest& request, const std::vector<Row>& rows) {
  ordered_json plans = ordered_json::array();
  for (const auto& [small, plan, refusal] : rows) {
    if (!refusal.empty()) {
      plans.push_back({{"small_workers", small}, {"refused", refusal}});
      continue;
    }
    plans.push_back({{"small_workers", small},
                     {"small_batch", plan.small_batch},
                     {"large_samples", plan.large_samples},
                     {"small_samples", plan.small_samples},
                     {"factor", plan.factor},
                     {"base_epoch_s", plan.base_seconds},
                     {"large_epoch_s", plan.large_seconds},
                     {"small_epoch_s", plan.small_seconds}});
    if (plan.small_lr_factor) plans.back()["small_lr_factor"] = *plan.small_lr_factor;
  }
  return {{"workers", request.workers}, {"base_batch", request.base_batch}, {"samples", request.samples},
          {"a", request.a.value()},     {"b", request.b.value()},           {"plans", plans}};
}

std::string table_of_plans(const ps::BatchPlanRequest& request, const std::vector<Row>& rows) {
  const auto whole = [](std::int64_t number) { return number > 0 ? concat(number) : std::string("-"); };
  const auto seconds = [](double s) { return s > 0 ? fixed(s, 3) : std::string("-"); };
  std::vector<TextRow> table{
      {"small workers", "small batch", "small samples", "large samples", "factor", "small epoch, s", "large epoch, s"}};
  std::string notes;
  for (const auto& [small, plan, refusal] : rows) {
    if (!refusal.empty()) {
      table.push_back({concat(small), "-"});
      notes += concat("\n", small, " small: ", refusal);
      continue;
    }
    table.push_back({concat(small), whole(plan.small_batch), whole(plan.small_samples), whole(plan.large_samples),
                     small > 0 ? fixed(plan.factor, 4) : "-", seconds(plan.small_seconds),
                     seconds(plan.large_seconds)});
    if (plan.small_lr_factor) {
      notes += concat("\na batch of ", plan.small_batch, " needs a lower rate: train.lr x ",
                      fixed(*plan.small_lr_factor, 4), " (the ratio of the batches) for these workers");
    }
  }
  return concat(text_table(table, std::vector{Align::kRight}), "\nall ", request.workers, " workers with batches of ",
                request.base_batch, ": ", fixed(rows.front().plan.base_seconds, 3), " s an epoch", notes);
}

// Reports an impossible number of small workers in its row, so that the table still shows the others.
Row row_of(const ps::BatchPlanRequest& request) {
  try {
    return {request.small_workers, ps::plan_batches(request), ""};
  } catch (const ConfigError& refusal) {
    return {request.small_workers, {}, refusal.what()};
  }
}

// More digits would be noise, and too many for exact fractions.
ps::Rational measured(double seconds, const std::string& file) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), seconds, std::chars_format::scientific, 5).ptr;
  return ps::Rational::parse({text.begin(), end}, file);
}

// (seconds per sample, fixed seconds) of a step on one device: the layers and the update of their weights.
std::pair<ps::Rational, ps::Rational> step_costs(const std::string& file) {
  const profiler::LayerProfile profile = profiler::read_profile(file);
  SizedCost step;
  std::uint64_t weights = 0;
  for (const LayerCost& layer : profile.costs()) {
    for (const SizedCost& part : {layer.forward, layer.input_gradient, layer.weight_gradient}) {
      step.a_s += part.a_s;
      step.b_s += part.b_s;
    }
    weights += layer.parameter_bytes;
  }
  if (profile.update) step.a_s += profile.update->at(static_cast<double>(weights));
  return {measured(step.b_s, file), measured(step.a_s, file)};
}

void take_costs(BatchPlanArguments& arguments) {
  ps::BatchPlanRequest& request = arguments.request;
  const bool has_numbers = !arguments.a.empty() && !arguments.b.empty();
  if (has_numbers == !arguments.profile.empty())
    throw ConfigError("give either --a and --b, or --profile (by sluice profile)");
  if (has_numbers) {
    request.a = ps::Rational::parse(arguments.a, "--a");
    request.b = ps::Rational::parse(arguments.b, "--b");
  } else {
    std::tie(request.a, request.b) = step_costs(arguments.profile);
  }
  if (!arguments.small_profile.empty())
    std::tie(request.small_a, request.small_b) = step_costs(arguments.small_profile);
}

void run_batch_plan(BatchPlanArguments& arguments) {
  ps::BatchPlanRequest& request = arguments.request;
  request.extra_time = ps::Rational::parse(arguments.extra_time, "--extra-time");
  take_costs(arguments);
  std::vector<Row> rows;
  request.small_workers = arguments.small.value_or(0);
  rows.push_back({request.small_workers, ps::plan_batches(request), ""});
  while (!arguments.small && request.small_workers < request.workers) {
    ++request.small_workers;
    rows.push_back(row_of(request));
  }
  arguments.output.print(json_of_plans(request, rows), table_of_plans(request, rows));
}

}  // namespace

void add_batch_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "batch-plan",
      "Plan dual batch sizes: the smaller batch with which some workers finish an epoch together with "
      "the others");
  const auto arguments = std::make_shared<BatchPlanArguments>();
  ps::BatchPlanRequest& request = arguments->request;
  constexpr std::int64_t kMost = 1'000'000'000'000;
  command->add_option("--workers", request.workers, "Workers in all")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--small", arguments->small,
                   "Workers with the small batch (default: one row for each number from 0)")
      ->type_name("S")
      ->check(CLI::Range(0, 1'000'000));
  command->add_option("--base-batch", request.base_batch, "Batch of the other workers")
      ->required()
      ->type_name("B")
      ->check(CLI::Range(std::int64_t{1}, kMost));
  command->add_option("--samples", request.samples, "Samples of an epoch")
      ->required()
      ->type_name("D")
      ->check(CLI::Range(std::int64_t{1}, kMost));
  command->add_option("--extra-time", arguments->extra_time, "Factor by which an epoch may take longer: 1.05 for 5 %")
      ->required()
      ->type_name("K");
  command->add_option("--a", arguments->a, "Seconds of a step per sample of its batch")->type_name("A");
  command->add_option("--b", arguments->b, "Constant seconds of a step")->type_name("B2");
  command
      ->add_option("--profile", arguments->profile,
                   "Instead of --a and --b: a profile of one device, by sluice profile")
      ->type_name("FILE");
  command
      ->add_option("--small-profile", arguments->small_profile,
                   "Profile of the small workers, if they are other machines (default: as the others)")
      ->type_name("FILE");
  command->add_flag("--force", request.allows_tiny, concat("Plan batches below ", ps::kLeastBatch, ", too"));
  arguments->output.add_to(*command);
  command->callback([arguments] { run_batch_plan(*arguments); });
}

}  // namespace sluice::app
