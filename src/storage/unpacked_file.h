// unpacked_file: a stream of at most `limit` uncompressed bytes of a gzip or plain file. Threads: one. Never throws; on
// a failure the stream ends and the object has the reason.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <streambuf>

struct gzFile_s;

namespace sluice::storage {

class UnpackedFile final : public std::streambuf {
 public:
  UnpackedFile(const std::filesystem::path& file, std::int64_t limit);
  ~UnpackedFile() override;

  [[nodiscard]] bool is_open() const { return file_ != nullptr; }
  [[nodiscard]] bool is_damaged() const { return is_damaged_; }  // damaged or truncated in the part read so far
  [[nodiscard]] bool is_cut() const { return left_ <= 0; }

 protected:
  int_type underflow() override;

 private:
  std::unique_ptr<gzFile_s, int (*)(gzFile_s*)> file_;
  std::int64_t left_;
  bool is_damaged_ = false;
  std::array<char, 65536> buffer_{};
};

}  // namespace sluice::storage
