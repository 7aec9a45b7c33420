#include "app/commands/simulate_cluster.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "app/quantities.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "core/text_table.h"
#include "train/plan/predicted_server.h"
#include "train/setup/run_state.h"
#include "train/study/simulated_cluster.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;

constexpr double kGigabyte = 1e9, kMicrosecond = 1e-6;  // default units

double parse_bandwidth(const std::string& option, const std::string& text) {
  const auto rate = parse_quantity(text, kRateUnits, kGigabyte);
  if (rate && *rate > 0) return *rate;
  throw CLI::ValidationError(
      option, concat("'", text, "' is not a bandwidth; give a number above 0, in GB/s or with ", kRateWords));
}

double parse_latency(const std::string& option, const std::string& text) {
  const auto seconds = parse_quantity(text, kTimeUnits, kMicrosecond);
  if (seconds && *seconds >= 0) return *seconds;
  throw CLI::ValidationError(
      option, concat("'", text, "' is not a time; give a number of at least 0, in microseconds or with ", kTimeWords));
}

ordered_json json_of_epochs(const std::vector<tune::ElasticRow>& rows) {
  ordered_json table = ordered_json::array();
  for (const tune::ElasticRow& row : rows) {
    ordered_json epochs = ordered_json::array();
    for (const tune::ElasticEpoch& epoch : row.epochs) {
      epochs.push_back({{"frozen_layers", epoch.frozen_layers},
                        {"devices", epoch.devices},
                        {"replicas", epoch.replicas},
                        {"chunks", epoch.chunks},
                        {"step_s", epoch.seconds},
                        {"samples_per_s", epoch.samples_per_s},
                        {"speedup", epoch.speedup}});
    }
    table.push_back({{"name", row.name}, {"speedup", row.speedup}, {"epochs", epochs}});
  }
  return table;
}

ordered_json json_of_cluster(const train::SimulatedCluster& simulated) {
  ordered_json steps = ordered_json::array();
  for (const tune::ClusterStep& step : simulated.scaling.steps) {
    steps.push_back({{"devices", step.devices},
                     {"nodes", step.nodes},
                     {"replicas", step.replicas},
                     {"chunks", step.chunks},
                     {"samples", step.samples},
                     {"step_s", step.seconds},
                     {"samples_per_s", step.samples_per_s()},
                     {"efficiency", step.efficiency},
                     {"compute_s", step.compute},
                     {"bubble_s", step.bubble},
                     {"exposed_communication_s", step.exposed_communication()},
                     {"optimizer_s", step.update},
                     {"stragglers_s", step.stragglers}});
  }
  ordered_json json{{"plan", train::plan_json(simulated.scaling.plan)},
                    {"one_device_samples_per_s", simulated.scaling.one_device_per_s},
                    {"scaling", steps}};
  if (!simulated.elastic.empty()) json["elastic"] = json_of_epochs(simulated.elastic);
  return json;
}

std::string percent_of(double part, double whole) { return concat(fixed(100 * part / whole, 1), " %"); }

std::string scaling_text(const tune::ClusterPrediction& prediction) {
  std::vector<TextRow> rows{{"devices", "nodes", "replicas", "chunks", "step ms", "samples/s", "efficiency", "bubble",
                             "communication", "stragglers"}};
  for (const tune::ClusterStep& step : prediction.steps) {
    rows.push_back({std::to_string(step.devices), std::to_string(step.nodes), std::to_string(step.replicas),
                    std::to_string(step.chunks), fixed(step.seconds * 1e3, 1), fixed(step.samples_per_s(), 1),
                    percent_of(step.efficiency, 1), percent_of(step.bubble, step.seconds),
                    percent_of(step.exposed_communication(), step.seconds), percent_of(step.stragglers, step.seconds)});
  }
  return concat(text_table(rows, std::array{Align::kRight}),
                "\n\nefficiency: relative to one device that trains the whole model, ",
                fixed(prediction.one_device_per_s, 1), " samples/s");
}

// Table in the layout of PipeTransformer: one row per configuration, one column per epoch.
std::string elastic_text(const std::vector<tune::ElasticRow>& table) {
  if (table.empty()) return "";
  TextRow head{"epoch"};
  for (std::size_t epoch = 1; epoch <= table.front().epochs.size(); ++epoch) head.push_back(std::to_string(epoch));
  head.emplace_back("speed-up");
  std::vector<TextRow> rows{head};
  for (const tune::ElasticRow& row : table) {
    TextRow cells{row.name};
    for (const tune::ElasticEpoch& epoch : row.epochs)
      cells.push_back(concat(epoch.replicas, "x", epoch.devices, " ", fixed(epoch.samples_per_s, 0), "/s"));
    cells.push_back(concat(fixed(row.speedup, 2), "x"));
    rows.push_back(std::move(cells));
  }
  return concat("\n\nfreezing, epoch by epoch (replicas x devices, samples/s):\n",
                text_table(rows, std::array{Align::kLeft, Align::kRight}));
}

}  // namespace

void SimulateClusterArguments::add_to(CLI::App& command) {
  constexpr auto kGroup = "A cluster of such devices";
  CLI::Option* const size =
      command
          .add_option("--nodes", nodes,
                      "Nodes of the largest cluster; the table has clusters of 1, 2, 4, ... replicas up to it")
          ->type_name("N")
          ->group(kGroup)
          ->check(CLI::Range(1, 100'000));
  const auto add = [&](const char* name, auto& value, const char* help, const char* unit) {
    return command.add_option(name, value, help)->type_name(unit)->group(kGroup)->needs(size);
  };
  add("--devices", devices, "Devices of a node", "K")->check(CLI::Range(1, 1024))->capture_default_str();
  const auto add_text = [&](const std::string& name, const auto& take, const char* help, const char* unit) {
    command
        .add_option_function<std::string>(
            name, [name, take](const std::string& text) { take(name, text); }, help)
        ->type_name(unit)
        ->group(kGroup)
        ->needs(size);
  };
  const auto add_link = [&](const std::string& prefix, LinkCost& link, const char* bandwidth, const char* latency) {
    const auto take_bandwidth = [&link](const auto& name, const auto& text) {
      link.bytes_per_s = parse_bandwidth(name, text);
    };
    const auto take_latency = [&link](const auto& name, const auto& text) {
      link.latency_s = parse_latency(name, text);
    };
    add_text(prefix + "bandwidth", take_bandwidth, bandwidth, "RATE");
    add_text(prefix + "latency", take_latency, latency, "TIME");
  };
  add_link("--", between,
           "Bandwidth of a node's link to the others, each way: 10Gbit/s, or a number of GB/s; default: infinite",
           "Latency of a message between nodes: 1ms, or a number of microseconds; default: 0");
  add_link("--inside-", inside, "Bandwidth between two devices of a node, each way; default: infinite",
           "Latency of a message between two devices of a node; default: 0");
  add("--noise", noise,
      "Standard deviation of a replica's step time, as a share of it; all replicas wait for the "
      "slowest",
      "SHARE")
      ->check(within(0, 10))
      ->capture_default_str();
  add("--scaling", scaling, "weak: constant samples per replica; strong: constant global batch", "KIND")
      ->check(CLI::IsMember({"weak", "strong"}))
      ->capture_default_str();
}

void SimulateClusterArguments::run(const config::Config& config, const profiler::LayerProfile& profile,
                                   const OutputArguments& output) const {
  const train::SimulatedCluster simulated = train::simulate_cluster(
      config, profile,
      {.cluster = {.devices_per_node = devices, .inside = inside, .between = between, .noise = noise},
       .nodes = nodes,
       .scaling = scaling == "weak" ? tune::Scaling::kWeak : tune::Scaling::kStrong});
  ordered_json json = json_of_cluster(simulated);
  if (const std::string left_out = train::server_left_out_of_cluster(config); !left_out.empty())
    json["left_out"] = left_out;
  output.print(json, concat(scaling_text(simulated.scaling), elastic_text(simulated.elastic)));
}

}  // namespace sluice::app
