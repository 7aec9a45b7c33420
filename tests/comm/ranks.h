// ranks: threads that stand in for the processes of a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace sluice::comm::test {

[[nodiscard]] int free_port();

// A world whose processes meet on this machine.
[[nodiscard]] World world_of(int rank, int size, int port);

// Runs body(rank) in a thread each. Returns the error of each, "<exit code>: <text>", or "".
[[nodiscard]] std::vector<std::string> run_ranks(int size, const std::function<void(int rank)>& body);

}  // namespace sluice::comm::test
