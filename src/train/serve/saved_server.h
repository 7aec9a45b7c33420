// saved_server: a parameter server's state in a checkpoint, besides weights and optimizer. Errors: CheckpointError.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "data/ledger.h"
#include "ps/server.h"

namespace sluice::train {

struct SavedServer {
  std::string run;  // the same after a resume; empty: unknown
  std::int64_t examples = 0;
  std::map<ps::WorkerId, int> incarnations;
  data::LedgerState ledger;

  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static SavedServer from_json(const nlohmann::json& json, const data::LedgerOptions& options,
                                             const std::string& source);
};

}  // namespace sluice::train
