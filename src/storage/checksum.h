// checksum: XXH3-128 (the xxhash library) of bytes and of files, as 32 hexadecimal digits, high half first, the form
// that `xxhsum -H2` prints. Finds accidental damage; it is no signature: whoever can write a file can write its hash.
// Threads: an object belongs to one thread. Errors: digest_file() as reading in files.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sluice::storage {

struct FileDigest {
  std::uint64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const FileDigest&) const = default;
};

// The digest of bytes that come in pieces.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  void update(std::span<const std::byte> bytes);
  [[nodiscard]] FileDigest digest() const;  // of everything so far

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::uint64_t bytes_ = 0;
};

[[nodiscard]] FileDigest digest_text(std::string_view text);
[[nodiscard]] FileDigest digest_file(const std::filesystem::path& file);

}  // namespace sluice::storage
