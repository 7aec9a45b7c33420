// host: what the system knows of this machine and this process: their names, for messages and file names, and what
// memory the process has taken.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

[[nodiscard]] std::string host_name();     // "localhost" where it has none
[[nodiscard]] std::string process_name();  // "HOST, process PID"
[[nodiscard]] std::string boot_id();       // tells this machine, since its last start, from every other

// Bytes that this process could still take without anything being swapped out, also within its container's limit.
[[nodiscard]] std::uint64_t available_memory();

// Largest resident memory of this process so far, in bytes.
[[nodiscard]] std::uint64_t peak_process_memory();

}  // namespace sluice
