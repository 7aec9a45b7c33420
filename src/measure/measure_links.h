// measure_links: measures the cost of passing tensors between stages and of all-reducing gradients, as latency + bytes
// / bandwidth (profiler/affine_fit.h, fit_link()). Threads: works in its own threads; the caller waits. Errors:
// PeerError.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/processes.h"
#include "core/clock.h"
#include "device/device.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

struct ReplicaGroup {
  std::vector<device::Device> devices;
  comm::Processes* processes = nullptr;  // null: one process
  comm::Collectives collectives = comm::Collectives::kAuto;
  at::ScalarType dtype = at::kFloat;
  int cpu_threads = 1;
};

// Half the round trip of an activation through the executor's channels, for each border. owners: [stage], index into
// `devices`. Within one memory nothing is copied, so there is no bandwidth. clock: read by one thread at a time.
[[nodiscard]] std::vector<profiler::StageLink> measure_stage_links(const std::vector<device::Device>& devices,
                                                                   const std::vector<int>& owners, int cpu_threads,
                                                                   const std::function<Nanoseconds()>& clock = now_ns);

// The all-reduce of one bucket over all replicas, from when all have their share; empty with one replica. Every process
// must take part; the result is local to the process.
[[nodiscard]] std::optional<profiler::AllReduceLink> measure_all_reduce(const ReplicaGroup& group,
                                                                        std::uint64_t largest_bytes);

}  // namespace sluice::measure
