// cpu_threads: how many intra-op threads LibTorch uses in one thread of work, and process-wide CPU settings.
// Facts behind it: at::set_num_threads is per thread plus a default that a fresh thread reads lazily; OpenMP's waiting
// policy is read once at load time.
#pragma once

namespace sluice::device {

// Call first in every thread of work: from then on LibTorch uses `threads` threads for operations of the calling
// thread. With 1 no OpenMP region is started at all.
void use_cpu_threads(int threads);

// Cores that this process may run on (its affinity mask), at least 1.
[[nodiscard]] int available_cores();

// Threads for each of `devices` CPU devices: `configured`, or an even share of `cores` when that is 0 (at least 1).
[[nodiscard]] int threads_per_device(int configured, int devices, double cores);

// Process-wide, once at the start of main: keeps large freed blocks in the process instead of returning them to the
// kernel, which costs a page fault for each 4 KiB of the next step's activations.
void tune_malloc();

}  // namespace sluice::device
