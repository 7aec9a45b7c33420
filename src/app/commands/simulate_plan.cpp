#include "app/commands/simulate_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "core/text_table.h"
#include "profiler/layer_profile.h"
#include "train/plan/predicted_server.h"
#include "train/plan/what_if.h"
#include "train/setup/run_state.h"

namespace sluice::app {
namespace {

using nlohmann::ordered_json;
using train::WhatIf;

double in_ms(double seconds) { return seconds * 1e3; }

ordered_json json_of_prediction(const WhatIf& answer) {
  ordered_json devices = ordered_json::array();
  for (std::size_t d = 0; d < answer.step.devices.size(); ++d) {
    const tune::DevicePrediction& device = answer.step.devices[d];
    devices.push_back({{"compute_s", device.compute},
                       {"bubble_s", device.bubble},
                       {"allreduce_exposed_s", device.all_reduce},
                       {"optimizer_s", device.update},
                       {"load_s", device.load},
                       {"other_s", device.other}});
    if (d < answer.device_bytes.size()) devices.back()["bytes"] = answer.device_bytes[d];
  }
  ordered_json json{{"plan", train::plan_json(answer.plan)},
                    {"step_s", answer.step.seconds},
                    {"samples_per_s", answer.samples_per_s},
                    {"allreduce_exposed_s", answer.step.all_reduce},
                    {"optimizer_s", answer.step.update},
                    {"load_s", answer.step.load},
                    {"devices", devices}};
  if (const auto& served = answer.step.served) {
    json["server"] = {{"push_exposed_s", served->push},
                      {"update_s", served->update},
                      {"pull_s", served->pull},
                      {"wait_s", served->wait},
                      {"network_bytes", answer.network_bytes}};
  }
  return json;
}

std::string text_of_server(const WhatIf& answer) {
  if (!answer.step.served) return "";
  const tune::ServedStep& served = *answer.step.served;
  const auto ms = [](double seconds) { return fixed(in_ms(seconds), 2); };
  return concat("\n\nparameter server, per worker's step: exposed push ", ms(served.push), " ms, update ",
                ms(served.update), " ms, pull ", ms(served.pull), " ms, waiting ", ms(served.wait), " ms; ",
                human_bytes(static_cast<std::uint64_t>(answer.network_bytes)), " over the network");
}

std::string text_of_prediction(const WhatIf& answer) {
  const auto ms = [](double seconds) { return fixed(in_ms(seconds), 1); };
  const std::string communication = answer.step.served ? "push, pull, wait ms" : "all-reduce ms";
  std::vector<TextRow> rows{
      {"device", "compute ms", "bubble ms", communication, "optimizer ms", "load ms", "other ms", "memory"}};
  for (std::size_t d = 0; d < answer.step.devices.size(); ++d) {
    const tune::DevicePrediction& device = answer.step.devices[d];
    rows.push_back({std::to_string(d), ms(device.compute), ms(device.bubble), ms(device.all_reduce), ms(device.update),
                    ms(device.load), ms(device.other),
                    d < answer.device_bytes.size() ? human_bytes(answer.device_bytes[d]) : ""});
  }
  std::vector<std::string> counts;
  for (const int layers : answer.plan.partition.layers_per_stage) counts.push_back(std::to_string(layers));
  return concat(counted(answer.plan.replicas, "replica"), " of ", counted(answer.plan.stages(), "stage"), " (",
                join(counts, ", "), " layers), ", counted(answer.plan.chunks, "micro-batch"), ", schedule ",
                answer.plan.schedule, "\n\n", text_table(rows, std::array{Align::kRight}), text_of_server(answer),
                "\n\npredicted: ", ms(answer.step.seconds), " ms a step, ", fixed(answer.samples_per_s, 1),
                " samples/s");
}

}  // namespace

void SimulatePlanArguments::add_to(CLI::App& command) {
  config.add_to(command, /*required=*/false);
  command
      .add_option("--profile", profile,
                  "Profile of this model, by `sluice profile`; the command needs no device, data or model")
      ->type_name("FILE")
      ->check(not_empty);
  cluster.add_to(command);
}

void SimulatePlanArguments::run(const OutputArguments& output) const {
  if (profile.empty())
    throw ConfigError("simulate needs --profile FILE, which `sluice profile CONFIG --out FILE` measures");
  const config::Config loaded = config.load();
  const profiler::LayerProfile measured = train::fitted_profile(loaded, profiler::read_profile(profile), profile);
  const std::string left_out =
      cluster.are_given() ? train::server_left_out_of_cluster(loaded) : train::server_left_out(loaded, measured);
  if (!left_out.empty()) log_warning(left_out);
  if (cluster.are_given()) return cluster.run(loaded, measured, output);
  const WhatIf answer = train::what_if(loaded, measured);
  const std::string no_room = train::memory_excess(answer);
  if (!no_room.empty()) log_warning("the plan does not fit: ", no_room, "; `sluice memory` says what would");
  ordered_json json = json_of_prediction(answer);
  if (!no_room.empty()) json["does_not_fit"] = no_room;
  if (!left_out.empty()) json["left_out"] = left_out;
  output.print(json, text_of_prediction(answer));
}

}  // namespace sluice::app
