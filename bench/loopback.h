// loopback: what this machine carries between a server and its workers when nobody does anything with it: the limits
// beside which bench_parameter_server's figures stand. Each worker gives all its bytes, then gets as many, again and
// again; both ends are threads of this process. Bytes in a second, both directions of all workers together.
#pragma once

#include <cstdint>

namespace sluice::ps {

struct Loopback {
  int workers = 1;
  std::int64_t bytes = std::int64_t{16} << 20;  // in each direction
  int frames = 4;                               // that these are in
  double seconds = 1;
};

// Copied by each worker's thread, once in each direction: what shared memory can carry.
[[nodiscard]] double memory_bytes_per_s(const Loopback& what);
// A plain TCP connection and two threads for each worker.
[[nodiscard]] double tcp_bytes_per_s(const Loopback& what);
// The frames of a push and of weights in ZeroMQ's messages, as a parameter server sends them.
[[nodiscard]] double frames_bytes_per_s(const Loopback& what);

}  // namespace sluice::ps
