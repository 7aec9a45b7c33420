// checksum: XXH3-128 of bytes and files, as 32 hexadecimal digits, like `xxhsum -H2`. Detects accidental damage only.
// Threads: an object belongs to one thread. Errors: digest_file() throws the reading errors of files.h.
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

class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  void update(std::span<const std::byte> bytes);
  [[nodiscard]] FileDigest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::uint64_t bytes_ = 0;
};

[[nodiscard]] FileDigest digest_text(std::string_view text);
[[nodiscard]] FileDigest digest_file(const std::filesystem::path& file);

}  // namespace sluice::storage
