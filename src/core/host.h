// host: the name of this machine, for messages and file names.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

[[nodiscard]] std::string host_name();  // "localhost" where it has none

// Largest resident memory of this process so far, in bytes.
[[nodiscard]] std::uint64_t peak_process_memory();

}  // namespace sluice
