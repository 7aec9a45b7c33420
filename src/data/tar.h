// tar: where the members of a tar archive lie, from its headers alone: POSIX ustar and pax, GNU long names, old v7. Of
// an archive of many gigabytes only the headers are read, so that any member can be read later by its position;
// libraries such as libarchive go through an archive once and do not tell positions. Not here: what members mean
// (tar_dataset.h). No LibTorch: the fuzzer builds it. Threads: pure. Errors: DataError for damaged archives, compressed
// ones, sparse members, hard links to what the archive does not have, and for an archive that follows the end of the
// first one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sluice::data {

struct TarMember {
  std::string name;         // with folders, as the archive has it
  std::int64_t offset = 0;  // of its bytes in the archive
  std::int64_t size = 0;
  bool is_symbolic_link = false;  // which has no bytes
};

struct TarListing {
  std::vector<TarMember> members;  // regular files and symbolic links, in order
  bool has_end = false;            // blocks of zeros; an archive without them may have been cut off
};

// Reads bytes.size() bytes from `offset` on; the archive has them.
using ReadAt = std::function<void(std::int64_t offset, std::span<std::uint8_t> bytes)>;

// A hard link, which is how tar stores another name of a file that it has stored already, has the position of that
// file. size: of the archive. name: in messages.
[[nodiscard]] TarListing list_tar(std::int64_t size, const ReadAt& read, const std::string& name);

}  // namespace sluice::data
