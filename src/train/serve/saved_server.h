// saved_server: what a checkpoint holds of a parameter server beside weights and optimizer: how many examples are in
// them, where the data stand, which run that is, how often each worker has joined. Values. Errors: CheckpointError.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "data/ledger.h"
#include "ps/server.h"

namespace sluice::train {

struct SavedServer {
  std::string run;  // which it is of, also where it goes on; empty: not known
  std::int64_t examples = 0;
  std::map<ps::WorkerId, int> incarnations;
  data::LedgerState ledger;

  [[nodiscard]] nlohmann::json to_json() const;
  // source: names the checkpoint.
  [[nodiscard]] static SavedServer from_json(const nlohmann::json& json, const data::LedgerOptions& options,
                                             const std::string& source);
};

}  // namespace sluice::train
