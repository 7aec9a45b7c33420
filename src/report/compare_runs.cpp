#include "report/compare_runs.h"

#include <array>
#include <limits>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "report/record_lines.h"
#include "report/run_log.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
using DigestsByStep = std::map<std::int64_t, Json>;

constexpr std::array<const char*, 3> kWholes{"weights", "optimizer", "ema"};

// keep: whether the layers of a step are kept, too.
template <typename Keep>
DigestsByStep read_digests(const std::filesystem::path& run, const Keep& keep) {
  require_run_dir(run);
  DigestsByStep digests;
  const auto take = [&](const Json& line, const std::string& event) {
    if (event != "digest") return;
    Json own = line;
    const auto step = own.at("step").get<std::int64_t>();
    if (!keep(step)) own.erase("layers");
    digests[step] = std::move(own);  // after a resume, a step may come twice
  };
  static_cast<void>(read_records(run / "metrics.jsonl", take, std::numeric_limits<std::int64_t>::max()));
  return digests;
}

std::optional<std::string> first_whole(const Json& a, const Json& b) {
  for (const char* name : kWholes) {
    if (a.value(name, "") != b.value(name, "")) return name;
  }
  return std::nullopt;
}

// a, b: digests by name in the order of the model; backward runs through them from the end.
std::optional<std::string> first_name(const Json& a, const Json& b, bool from_the_end) {
  std::optional<std::string> found;
  for (const auto& [name, digests] : a.items()) {
    if (!b.contains(name) || digests == b.at(name)) continue;
    found = name;
    if (!from_the_end) break;
  }
  return found;
}

// In the order in which a step computes.
void find_layer(const Json& a, const Json& b, RunDifference& difference) {
  for (const char* part : {"forward", "backward", "sum", "update", "buffers"}) {
    if (!a.contains(part) || !b.contains(part)) continue;
    const auto name = first_name(a.at(part), b.at(part), std::string_view(part) == "backward");
    if (!name) continue;
    difference.what = part;
    difference.name = *name;
    const Json &of_a = a.at(part).at(*name), &of_b = b.at(part).at(*name);
    for (std::size_t m = 0; of_a.is_array() && of_b.is_array() && m < of_a.size(); ++m) {
      if (m < of_b.size() && of_a[m] == of_b[m]) continue;
      difference.micro_batch = static_cast<std::int64_t>(m);
      break;
    }
    return;
  }
}

}  // namespace

RunComparison compare_runs(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto no_layers = [](std::int64_t) { return false; };
  const DigestsByStep of_a = read_digests(a, no_layers), of_b = read_digests(b, no_layers);
  RunComparison comparison;
  for (const auto& [step, digests] : of_a) {
    const auto other = of_b.find(step);
    if (other == of_b.end()) continue;
    if (const auto what = first_whole(digests, other->second); what && !comparison.first)
      comparison.first = {.step = step, .equal_until = comparison.last_step, .what = *what};
    ++comparison.steps;
    comparison.last_step = step;
  }
  if (comparison.steps == 0) {
    throw DataError("the two runs have no digests of the same step (", of_a.size(), " and ", of_b.size(),
                    " digests); set log.digest_every alike in both");
  }
  if (comparison.first) {
    const std::int64_t step = comparison.first->step;
    const auto is_it = [&](std::int64_t own) { return own == step; };
    const Json with_a = read_digests(a, is_it).at(step), with_b = read_digests(b, is_it).at(step);
    if (with_a.contains("layers") && with_b.contains("layers"))
      find_layer(with_a.at("layers"), with_b.at("layers"), *comparison.first);
  }
  return comparison;
}

Json to_json(const RunComparison& comparison) {
  Json first = nullptr;
  if (const auto& difference = comparison.first) {
    first = {{"step", difference->step}, {"equal_until", difference->equal_until}, {"what", difference->what}};
    if (!difference->name.empty()) first["name"] = difference->name;
    if (difference->micro_batch) first["micro_batch"] = *difference->micro_batch;
  }
  return {{"first_difference", first}, {"steps", comparison.steps}, {"last_step", comparison.last_step}};
}

std::string describe(const RunComparison& comparison) {
  if (!comparison.first)
    return concat("equal: ", counted(comparison.steps, "step"), " with digests, the last one step ",
                  comparison.last_step);
  const RunDifference& difference = *comparison.first;
  std::string text = concat("first difference: ", difference.what);
  if (!difference.name.empty()) text += concat(" of ", difference.name);
  if (difference.micro_batch) text += concat(", micro-batch ", *difference.micro_batch);
  text += concat(", in step ", difference.step);
  if (difference.equal_until + 1 < difference.step) {
    text += concat(" or after step ", difference.equal_until,
                   ", the last with equal digests; with log.digest_every = 1 ", "both runs name the step");
  }
  if (difference.name.empty()) text += "; with log.digest_layers = true both runs name the layer";
  return text;
}

}  // namespace sluice::report
