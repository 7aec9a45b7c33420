#include "storage/checksum.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <memory>

#include "storage/files.h"

namespace sluice::storage {
namespace {

constexpr std::size_t kReadBlock = std::size_t{1} << 20;

std::string hex(XXH128_hash_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t half : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(half >> shift) & 0xf];
  }
  return text;
}

}  // namespace

struct Digester::State {
  XXH3_state_t xxh3;
};

Digester::Digester() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }
Digester::~Digester() = default;

void Digester::update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
  bytes_ += bytes.size();
}

FileDigest Digester::digest() const { return {bytes_, hex(XXH3_128bits_digest(&state_->xxh3))}; }

FileDigest digest_text(std::string_view text) { return {text.size(), hex(XXH3_128bits(text.data(), text.size()))}; }

FileDigest digest_file(const std::filesystem::path& file) {
  const FileDescriptor handle = open_for_reading(file);
  ::posix_fadvise(handle.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  Digester digester;
  const auto block = std::make_unique_for_overwrite<std::byte[]>(kReadBlock);
  for (;;) {
    const auto count = uninterrupted([&] { return ::read(handle.get(), block.get(), kReadBlock); });
    if (count < 0) throw_storage_error(errno, "read", file);
    if (count == 0) return digester.digest();
    digester.update({block.get(), static_cast<std::size_t>(count)});
  }
}

}  // namespace sluice::storage
