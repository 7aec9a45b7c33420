// cpu_threads: intra-op threads of LibTorch per device thread, and process-wide CPU settings. A new thread reads
// LibTorch's default lazily; OpenMP reads its waiting policy once, at load time.
#pragma once

namespace sluice::device {

// Call first in every device thread. With 1, no OpenMP region is started.
void use_cpu_threads(int threads);

// Cores in the affinity mask of this process, at least 1.
[[nodiscard]] int available_cores();

// Threads per CPU device: `configured`, or if that is 0 an even share of `cores` (at least 1).
[[nodiscard]] int threads_per_device(int configured, int devices, double cores);

// Call once at the start of main. Keeps large freed blocks, because returning them costs page faults in the next step.
void tune_malloc();

}  // namespace sluice::device
