// Any bytes as a tar file: members that lie inside it, or one DataError.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "data/tar.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice::data;
  const auto end = static_cast<std::int64_t>(size);
  const ReadAt read = [&](std::int64_t offset, std::span<std::uint8_t> bytes) {
    if (offset < 0 || offset + std::ssize(bytes) > end) std::abort();
    std::copy_n(data + offset, bytes.size(), bytes.begin());
  };
  try {
    std::int64_t before = 0;
    for (const TarMember& member : list_tar(end, read, "fuzz").members) {
      if (member.is_symbolic_link) continue;
      if (member.size < 0 || member.offset < 512 || member.offset + member.size > end) std::abort();
      const bool is_hard_link = member.offset + member.size <= before;
      if (!is_hard_link && member.offset < before + 512) std::abort();
      before = std::max(before, member.offset + member.size);
    }
  } catch (const sluice::DataError&) {
  }
  return 0;
}
