#include "report/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::report {
namespace {

TEST(Crc32c, KnownAnswer) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c_portable("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, TheInstructionAndTheTableAgreeAtEveryLengthAndOffset) {
  std::string bytes(70, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 151 + 7);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; begin + size <= bytes.size(); ++size) {
      const auto part = std::string_view(bytes).substr(begin, size);
      EXPECT_EQ(crc32c(part), crc32c_portable(part)) << begin << " " << size;
    }
  }
}

}  // namespace
}  // namespace sluice::report
