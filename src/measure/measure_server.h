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

// A server and one of its workers, as they are measured.
struct ServerSetup {
  device::Device device;  // of the worker's weights
  at::ScalarType dtype = at::kFloat;
  int cpu_threads = 1;  // of the worker
  std::size_t bucket_bytes = 1;
  int shards = 1;
  ps::LinkCompression compression;
  ps::ServerOptions
      server;  // its workers push gradients; policy and threads are the measurement's own, so is a missing lr
};

// Lines through medians over sizes of weights from 4 KiB to largest_bytes, at most 256 MiB (beyond: the line). Seconds
// and bytes. push, pull, update: through the socket; merge: of a second push, in memory.
[[nodiscard]] ServerCost measure_server(const ServerSetup& setup, std::uint64_t largest_bytes);

}  // namespace sluice::measure
