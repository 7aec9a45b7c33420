// tar: positions of the members of a tar archive, from its headers alone: POSIX ustar and pax, GNU long names, old v7.
// Members can then be read in any order; libarchive does not report positions. No LibTorch, because the fuzzer builds
// it.
// Threads: pure. Errors: DataError for damaged or compressed archives, sparse members, hard links to missing members,
// and an archive appended to the first one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sluice::data {

struct TarMember {
  std::string name;         // with folders, as in the archive
  std::int64_t offset = 0;  // of its bytes in the archive
  std::int64_t size = 0;
  bool is_symbolic_link = false;  // such a member has no bytes
};

struct TarListing {
  std::vector<TarMember> members;  // regular files and symbolic links, in order
  bool has_end = false;            // ends with blocks of zeros; otherwise the archive may be truncated
};

// Reads bytes.size() bytes from `offset`; the range lies within the archive.
using ReadAt = std::function<void(std::int64_t offset, std::span<std::uint8_t> bytes)>;

// A hard link gets the position of the file. size: of the archive. name: for messages.
[[nodiscard]] TarListing list_tar(std::int64_t size, const ReadAt& read, const std::string& name);

}  // namespace sluice::data
