// ranks: threads that stand in for the processes of a run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/world.h"

namespace sluice::comm::test {

// A port on which nobody listens.
[[nodiscard]] int free_port();

// Rank `rank` of `size` that meets the others on this machine.
[[nodiscard]] World world_of(int rank, int size, int port);

// Runs body(rank) in a thread each. What each threw, "<exit code>: <text>", or "".
[[nodiscard]] std::vector<std::string> run_ranks(int size, const std::function<void(int rank)>& body);

}  // namespace sluice::comm::test
