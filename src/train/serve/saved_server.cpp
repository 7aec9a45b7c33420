#include "train/serve/saved_server.h"

#include "core/concat.h"
#include "core/error.h"

namespace sluice::train {

nlohmann::json SavedServer::to_json() const {
  nlohmann::json json{{"run", run},
                      {"examples", examples},
                      {"lives", nlohmann::json::array()},
                      {"data", {{"first_epoch", ledger.first}, {"epochs", nlohmann::json::array()}}}};
  for (const auto& [worker, joined] : incarnations) json["lives"].push_back({static_cast<int>(worker), joined});
  for (const data::LedgerState::Epoch& epoch : ledger.open) {
    json["data"]["epochs"].push_back(
        {{"next", epoch.next}, {"returned", epoch.returned}, {"pushed", epoch.pushed}, {"lost", epoch.lost}});
  }
  return json;
}

SavedServer SavedServer::from_json(const nlohmann::json& json, const data::LedgerOptions& options,
                                   const std::string& source) {
  SavedServer saved;
  try {
    saved.run = json.value("run", "");
    saved.examples = json.at("examples");
    for (const auto& entry : json.at("lives")) saved.incarnations[ps::WorkerId{entry.at(0).get<int>()}] = entry.at(1);
    saved.ledger.first = json.at("data").at("first_epoch");
    for (const auto& epoch : json.at("data").at("epochs"))
      saved.ledger.open.push_back({epoch.at("next"), epoch.at("returned"), epoch.at("pushed"), epoch.at("lost")});
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(
        concat(source, ": state.json has no valid parameter server (", error.what(), "); use another checkpoint"));
  }
  if (saved.examples < 0 || !data::is_sound(saved.ledger, options)) {
    throw CheckpointError(source, ": the samples in state.json do not match the ", options.samples,
                          " training samples; use the data of the checkpoint, or another checkpoint");
  }
  return saved;
}

}  // namespace sluice::train
