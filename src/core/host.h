// host: names of this machine and process (for messages and file names) and memory figures of the process.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

[[nodiscard]] std::string host_name();     // "localhost" if the system has no name
[[nodiscard]] std::string process_name();  // "HOST, process PID"
[[nodiscard]] std::string boot_id();       // identifies this machine and its current boot

// Bytes that this process can still allocate without swapping, within its container's limit.
[[nodiscard]] std::uint64_t available_memory();

[[nodiscard]] std::uint64_t peak_process_memory();

}  // namespace sluice
