#include "report/compare_runs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
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
  const std::filesystem::path file = run / "metrics.jsonl";
  DigestsByStep digests;
  const auto take = [&](const Json& line, const std::string& event) {
    if (event != "digest") return;
    Json own = line;
    const bool has_texts =
        std::ranges::all_of(kWholes, [&](const char* name) { return !own.contains(name) || own.at(name).is_string(); });
    if (!own.contains("step") || !own.at("step").is_number_integer() || !has_texts) {
      throw DataError(printable(file.string()), " has a damaged digest: ", line.dump().substr(0, 100),
                      "; remove that line, or run again");
    }
    const auto step = own.at("step").get<std::int64_t>();
    if (!keep(step)) own.erase("layers");
    digests[step] = std::move(own);  // after a resume, a step may come twice
  };
  const LineDamage damage = read_records(file, take, std::numeric_limits<std::int64_t>::max());
  if (damage.unreadable_lines > 0) {
    log_warning(printable(file.string()), " has ", counted(damage.unreadable_lines, "unreadable line"),
                ", whose digests are left out");
  }
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

// The first layer that only one of the runs has.
std::optional<std::string> layer_of_one(const Json& a, const Json& b) {
  const auto names_of = [](const Json& layers) {
    std::vector<std::string> names;
    const Json forward = layers.value("forward", Json::object());
    for (const auto& [name, digests] : forward.items()) names.push_back(name);
    return names;
  };
  const std::vector<std::string> of_a = names_of(a), of_b = names_of(b);
  const auto [own, other] = std::ranges::mismatch(of_a, of_b);
  if (own != of_a.end()) return *own;
  return other != of_b.end() ? std::optional(*other) : std::nullopt;
}

// In the order in which a step computes.
void find_layer(const Json& a, const Json& b, RunDifference& difference) {
  difference.has_layers = true;
  if (const auto layer = layer_of_one(a, b)) {
    difference.what = "layers";
    difference.name = *layer;
    return;
  }
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
  const auto only_in_one = static_cast<std::int64_t>(of_a.size() + of_b.size()) - 2 * comparison.steps;
  comparison.only_in_one = only_in_one;
  if (comparison.steps == 0) {
    throw DataError("the runs have no digests of the same step: ", printable(a.string()), " has ", of_a.size(),
                    " digests, ", printable(b.string()), " has ", of_b.size(), "; set log.digest_every alike in both");
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
  return {{"first_difference", first},
          {"steps", comparison.steps},
          {"last_step", comparison.last_step},
          {"only_in_one", comparison.only_in_one}};
}

std::string describe(const RunComparison& comparison) {
  if (!comparison.first) {
    return concat(
        "equal: ", counted(comparison.steps, "step"), " with digests, the last one step ", comparison.last_step,
        comparison.only_in_one > 0
            ? concat("; ", counted(comparison.only_in_one, "digest"), " of steps that only one of the runs has")
            : std::string());
  }
  const RunDifference& difference = *comparison.first;
  if (difference.what == "layers") {
    return concat("the runs have different models or frozen layers: ", difference.name,
                  " is in one of them only, in step ", difference.step);
  }
  std::string text = concat("first difference: ", difference.what);
  if (!difference.name.empty()) text += concat(" of ", difference.name);
  if (difference.micro_batch) text += concat(", micro-batch ", *difference.micro_batch);
  text += concat(", in step ", difference.step);
  if (difference.equal_until + 1 < difference.step) {
    text += concat(" or after step ", difference.equal_until,
                   ", the last with equal digests; with log.digest_every = 1 ", "both runs name the step");
  }
  if (!difference.has_layers) text += "; with log.digest_layers = true both runs name the layer";
  return text;
}

}  // namespace sluice::report
