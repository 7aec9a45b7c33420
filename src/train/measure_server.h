// measure_server: what a parameter server costs a worker, through all of its own parts (ps/net): a server in a thread,
// and a worker that computes nothing, over a socket of this machine, with the configured optimizer and compression.
// Not here: what that makes of a step (tune/server_step.h); other machines' networks, encryption, logs.
// Threads: works in some of its own; the caller waits. Errors: those of the server and its link, "measuring the
// parameter server: ...".
#pragma once

#include <cstdint>
#include <optional>

#include "profiler/layer_profile.h"
#include "train/setup.h"

namespace sluice::train {

// Lines through the medians of several pushes at several sizes, up to so many bytes of weights, in one server. Nothing:
// the configuration has none, or its workers push something else than gradients.
[[nodiscard]] std::optional<profiler::MeasuredServer> measure_server(const Setup& setup, std::uint64_t largest_bytes);

}  // namespace sluice::train
