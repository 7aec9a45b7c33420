// unpacked_file: the bytes of a file that gzip has packed, or of a plain one, as a stream, up to a limit, so that
// memory is bounded whatever the file holds. Not here: packing (gzip.h), data sets (data/idx.h). Threads: one. Errors:
// none; the stream ends where reading cannot go on, and the object says why.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <streambuf>

struct gzFile_s;  // zlib's

namespace sluice::storage {

class UnpackedFile final : public std::streambuf {
 public:
  UnpackedFile(const std::filesystem::path& file, std::int64_t limit);
  ~UnpackedFile() override;

  [[nodiscard]] bool is_open() const { return file_ != nullptr; }
  [[nodiscard]] bool is_damaged() const { return is_damaged_; }  // or cut, as far as it was read
  [[nodiscard]] bool is_cut() const { return left_ <= 0; }       // by the limit

 protected:
  int_type underflow() override;

 private:
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::int64_t left_;
  bool is_damaged_ = false;
  std::array<char, 65536> buffer_{};
};

}  // namespace sluice::storage
