// replay_report: the output of `sluice replay`: the recorded and the replayed step per device, and the critical path.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tune/step_replay.h"

namespace sluice::app {

struct ReplayFindings {
  std::vector<tune::RecordedProcess> recorded;
  tune::StepReplay unedited;
  tune::StepReplay edited;
  std::vector<std::string> edits;  // as given on the command line; empty if both replays are the same
};

[[nodiscard]] nlohmann::ordered_json json_of_replay(const ReplayFindings& findings);
[[nodiscard]] std::string text_of_replay(const ReplayFindings& findings);

}  // namespace sluice::app
