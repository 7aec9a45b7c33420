#include "app/commands/simulate_workers.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "core/text_table.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;

ordered_json json_of_workers(const ps::UnevenRequest& request, const ps::UnevenResult& found) {
  ordered_json staleness = ordered_json::object();
  for (const auto& [updates, pushes] : found.staleness) staleness[concat(updates)] = pushes;
  return {{"sync", request.sync},
          {"workers", request.workers},
          {"base_batch", request.base_batch},
          {"seconds_per_example", request.seconds_per_example},
          {"induce", request.induce},
          {"seed", request.seed},
          {"steps", found.steps},
          {"pushes", found.pushes},
          {"virtual_s", to_s(found.time)},
          {"steps_per_s", found.steps_per_s()},
          {"examples_per_s", found.examples_per_s()},
          {"examples_per_worker_mean", found.examples_of_a_push()},
          {"examples_per_worker_least", found.least_examples},
          {"examples_per_worker_most", found.most_examples},
          {"slowest_worker_s_mean", found.slowest_worker_s()},
          {"slowest_worker_s_most", to_s(found.longest_push)},
          {"step_s_mean", found.step_s()},
          {"staleness", std::move(staleness)}};
}

// Rows are ranges that double: 0, 1, 2 to 3, 4 to 7, ...
std::string table_of_staleness(const ps::UnevenResult& found) {
  std::vector<std::int64_t> pushes;
  for (const auto& [updates, count] : found.staleness) {
    const auto width = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(updates)));
    if (pushes.size() <= width) pushes.resize(width + 1);
    pushes[width] += count;
  }
  std::vector<TextRow> table{{"staleness, updates", "pushes", "share"}};
  for (std::size_t width = 0; width < pushes.size(); ++width) {
    const std::int64_t least = width == 0 ? 0 : std::int64_t{1} << (width - 1);
    const std::int64_t most = width == 0 ? 0 : 2 * least - 1;
    table.push_back({least == most ? concat(least) : concat(least, " to ", most), concat(pushes[width]),
                     percent(static_cast<double>(pushes[width]) / static_cast<double>(found.pushes))});
  }
  return text_table(table, std::vector{Align::kRight});
}

std::string text_of_workers(const ps::UnevenRequest& request, const ps::UnevenResult& found) {
  const std::string examples = found.least_examples == found.most_examples
                                   ? std::string()
                                   : concat(" (", found.least_examples, " to ", found.most_examples, ")");
  const std::vector<TextRow> table{
      {"updates a second", fixed(found.steps_per_s(), 4)},
      {"examples a second", fixed(found.examples_per_s(), 2)},
      {"seconds of an update, mean", fixed(found.step_s(), 4)},
      {"slowest worker of an update, s, mean", fixed(found.slowest_worker_s(), 4)},
      {"slowest worker of all, s", fixed(to_s(found.longest_push), 4)},
      {"examples of a push, mean", concat(fixed(found.examples_of_a_push(), 2), examples)}};
  return concat(request.sync, ", ", counted(request.workers, "worker"), ", base batch ", request.base_batch,
                ", stragglers ", request.induce, ", seed ", request.seed, ": ", counted(found.steps, "update"), " in ",
                fixed(to_s(found.time), 3), " virtual s\n\n", text_table(table), "\n\n", table_of_staleness(found));
}

}  // namespace

void SimulateWorkersArguments::add_to(CLI::App& command) {
  constexpr auto kGroup = "Uneven workers of a parameter server, in virtual time (docs/how-to/parameter_server.md)";
  CLI::Option* const policy =
      command.add_option("--sync", request.sync, concat("One of: ", join(ps::uneven_sync_names(), ", ")))
          ->type_name("POLICY")
          ->group(kGroup);
  for (const char* other : {"--set", "--profile", "--nodes"}) policy->excludes(command.get_option(other));
  const auto add = [&](const std::string& name, auto& value, const std::string& type, const std::string& help) {
    return command.add_option(name, value, help)->type_name(type)->group(kGroup)->needs(policy);
  };
  add("--workers", workers, "N", "Workers of the server");
  add("--base-batch", base_batch, "B", "Examples of a push; for amb the maximum");
  add("--seconds-per-example", request.seconds_per_example, "S[,S...]",
      "Seconds per example; one value for all workers or one per worker")
      ->delimiter(',')
      ->check(not_empty)
      ->allow_extra_args(false);
  add("--amb-time-limit", request.time_limit_s, "T",
      "amb: seconds, stalls included, after which a worker begins no further slice; the first one "
      "always runs");
  add("--partitions", request.partitions, "P", "amb: slices per batch, with int(B / P) examples each");
  add("--staleness", request.staleness, "s",
      "ssp: pushes that a worker may be ahead of the slowest when it begins (default 3)");
  add("--quorum", request.quorum, "K", "quorum: pushes that make an update (default: more than half of the workers)");
  add("--induce", request.induce, "KIND",
      concat("How workers stall before they compute, one of: ", join(ps::induce_names(), ", "), " (default none)"));
  add("--shift", request.shift_s, "SECONDS", "shifted-exponential: constant part of every stall (default 0)");
  add("--mean", request.mean_s, "SECONDS", "shifted-exponential: mean of the random part (default 1)");
  add("--steps", request.steps, "n", "Updates of the server (default 1000)");
  add("--seed", request.seed, "k", "Seed of the stalls, as train.seed (default 0)")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
}

void SimulateWorkersArguments::run(const OutputArguments& output) const {
  if (!workers || !base_batch || request.seconds_per_example.empty())
    throw ConfigError("--sync needs --workers N, --base-batch B and --seconds-per-example S, too; give all three");
  ps::UnevenRequest whole = request;
  whole.workers = *workers;
  whole.base_batch = *base_batch;
  const ps::UnevenResult found = ps::simulate_uneven_workers(whole);
  output.print(json_of_workers(whole, found), text_of_workers(whole, found));
}

}  // namespace sluice::app
