// measure_server: what a parameter server costs a worker, through all of its own parts (ps/net): a server in a thread,
// and a worker that computes nothing, over a socket of this machine, with the same optimizer and compression.
// Not here: what that makes of a step (tune/server_step.h); other machines' networks, encryption, logs.
// Threads: works in some of its own; the caller waits. Errors: those of the server and its link, "measuring the
// parameter server: ...".
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "core/server_cost.h"
#include "device/device.h"
#include "ps/compression.h"
#include "ps/server.h"

namespace sluice::measure {

struct ServedWorker {
  device::Device device;  // of its weights
  at::ScalarType dtype = at::kFloat;
  int cpu_threads = 1;
  std::size_t bucket_bytes = 1;
  int shards = 1;  // of the server
  ps::LinkCompression compression;
  ps::ServerOptions server;  // its workers push gradients; policy, rate and threads are the measurement's own
};

// Lines through the medians of several pushes at several sizes, up to so many bytes of weights, in one server.
[[nodiscard]] ServerCost measure_server(const ServedWorker& worker, std::uint64_t largest_bytes);

}  // namespace sluice::measure
