// cpu_threads: intra-op threads of LibTorch per device thread, and process-wide CPU settings. Background:
// at::set_num_threads is per thread, with a default that a new thread reads lazily; OpenMP reads its waiting policy
// once, at load time.
#pragma once

namespace sluice::device {

// Sets the number of intra-op threads for the calling thread. Call first in every device thread. With 1, no OpenMP
// region is started.
void use_cpu_threads(int threads);

// Cores in the affinity mask of this process, at least 1.
[[nodiscard]] int available_cores();

// Threads per CPU device: `configured`, or if that is 0 an even share of `cores` (at least 1).
[[nodiscard]] int threads_per_device(int configured, int devices, double cores);

// Call once at the start of main. Keeps large freed blocks in the process: returning them to the kernel would cost a
// page fault per 4 KiB of activations in the next step.
void tune_malloc();

}  // namespace sluice::device
