// crc32c: the CRC of TensorBoard's event files (Castagnoli polynomial 0x1EDC6F41, reflected). Checkpoints use XXH3-128
// (storage/checksum.h). Threads: any.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::report {

// crc32c("123456789") == 0xE3069283. Uses the SSE4.2 instruction if available.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

[[nodiscard]] std::uint32_t crc32c_portable(std::string_view bytes);

// The rotated and shifted form in which event files store a CRC, because a CRC over data with embedded CRCs is weak.
[[nodiscard]] std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace sluice::report
