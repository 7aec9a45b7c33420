// crc32c: the CRC of TensorBoard's event files (Castagnoli polynomial 0x1EDC6F41, reflected).
// Not for checkpoints: those use XXH3-128 (storage/checksum.h). Threads: any.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::report {

// crc32c("123456789") == 0xE3069283. Uses the processor's instruction (SSE4.2) when it has it.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

// The same by a table, on any processor.
[[nodiscard]] std::uint32_t crc32c_portable(std::string_view bytes);

// The form in which event files store a CRC: rotated and shifted, so that a CRC of CRCs stays useful.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace sluice::report
