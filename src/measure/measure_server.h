// measure_server: measures the cost of a parameter server over a local socket, with the run's optimizer and
// compression, but without networks between machines, encryption and logs.
// Threads: works in its own threads; the caller waits. Errors: "measuring the parameter server: ...".
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "core/server_cost.h"
#include "device/device.h"
#include "ps/compression.h"
#include "ps/server.h"

namespace sluice::measure {

struct ServerSetup {
  device::Device device;  // of the worker's weights
  at::ScalarType dtype = at::kFloat;
  int cpu_threads = 1;
  std::size_t bucket_bytes = 1;
  int shards = 1;
  ps::LinkCompression compression;
  ps::ServerOptions server;  // takes gradients; policy, threads and a missing lr are replaced
};

// Lines through medians over weights of 4 KiB to largest_bytes, capped at 256 MiB (larger sizes are extrapolated).
// Seconds and bytes. push, pull, update: through the socket; merge: of a second push, in memory.
[[nodiscard]] ServerCost measure_server(const ServerSetup& setup, std::uint64_t largest_bytes);

}  // namespace sluice::measure
