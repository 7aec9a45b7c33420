#include "report/crc32c.h"

#include <array>
#include <bit>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace sluice::report {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78U;
constexpr std::uint32_t kMaskDelta = 0xa282ead8U;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? kReflectedPolynomial : 0U);
    table[byte] = crc;
  }
  return table;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] std::uint32_t crc32c_sse42(std::string_view bytes) {
  std::uint64_t crc = ~std::uint32_t{0};
  for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<std::uint32_t>(crc);
  for (const char byte : bytes) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(byte));
  return ~rest;
}

bool has_sse42() {
  static const bool kSupported = __builtin_cpu_supports("sse4.2") != 0;
  return kSupported;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::string_view bytes) {
  static constexpr auto kTable = make_table();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU];
  return ~crc;
}

std::uint32_t crc32c(std::string_view bytes) {
#if defined(__x86_64__)
  if (has_sse42()) return crc32c_sse42(bytes);
#endif
  return crc32c_portable(bytes);
}

std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + kMaskDelta; }

}  // namespace sluice::report
