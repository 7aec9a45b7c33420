// measure_links: what it costs to pass tensors on: from a stage to the next, and between replicas to add gradients up.
// latency + bytes / bandwidth, by the medians of several repeats at several sizes (profiler/affine_fit.h, fit_link()).
// Not here: how the layers' times add to it (tune/).
// Threads: works in threads of its own; the caller waits. Errors: those of describe_failure(); PeerError when another
// process is lost.
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

// The replicas whose gradients are added up.
struct ReplicaGroup {
  std::vector<device::Device> devices;   // of the local replicas, where their gradients are
  comm::Processes* processes = nullptr;  // null: there is one
  comm::Collectives collectives = comm::Collectives::kAuto;
  at::ScalarType dtype = at::kFloat;
  int cpu_threads = 1;
};

// Each border of a replica on `devices`, of which number owners[stage] runs a stage: half the time in which an
// activation goes to the next stage's thread and back, through the executor's channels and device::transfer(). In the
// same memory nothing is copied: there is then no bandwidth. clock: read by one thread at a time.
[[nodiscard]] std::vector<profiler::StageLink> measure_stage_links(const std::vector<device::Device>& devices,
                                                                   const std::vector<int>& owners, int cpu_threads,
                                                                   const std::function<Nanoseconds()>& clock = now_ns);

// The sum of one bucket over all replicas, through the reducer, from when all of them have their share.
// `largest_bytes`: of a bucket. Nothing with one replica. Every process takes part; the answer is this process's own.
[[nodiscard]] std::optional<profiler::AllReduceLink> measure_all_reduce(const ReplicaGroup& group,
                                                                        std::uint64_t largest_bytes);

}  // namespace sluice::measure
