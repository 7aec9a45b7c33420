// loopback: what this machine can carry between a server and its workers without any other work: the limits for
// bench_parameter_server's numbers. Each worker repeatedly sends all its bytes, then receives as many; both ends are
// threads of this process. Results in bytes per second, both directions of all workers together.
#pragma once

#include <cstdint>

namespace sluice::ps {

struct Loopback {
  int workers = 1;
  std::int64_t bytes = std::int64_t{16} << 20;  // per direction
  int frames = 4;                               // that these bytes are split into
  double seconds = 1;
};

// Each worker's thread copies once in each direction: the limit of shared memory.
[[nodiscard]] double memory_bytes_per_s(const Loopback& what);
// A plain TCP connection and two threads per worker.
[[nodiscard]] double tcp_bytes_per_s(const Loopback& what);
// The frames of a push and of weights in ZeroMQ messages, as a parameter server sends them.
[[nodiscard]] double frames_bytes_per_s(const Loopback& what);

}  // namespace sluice::ps
