#include "storage/unpacked_file.h"

#include <zlib.h>

namespace sluice::storage {

UnpackedFile::UnpackedFile(const std::filesystem::path& file, std::int64_t limit)
    : file_(gzopen(file.c_str(), "rb"), &gzclose), left_(limit) {}

UnpackedFile::~UnpackedFile() = default;

UnpackedFile::int_type UnpackedFile::underflow() {
  const int got = left_ > 0 ? gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size())) : 0;
  int error = Z_OK;
  (void)gzerror(file_.get(), &error);
  is_damaged_ |= got < 0 || error != Z_OK;
  if (got <= 0) return traits_type::eof();
  left_ -= got;
  setg(buffer_.data(), buffer_.data(), buffer_.data() + got);
  return traits_type::to_int_type(buffer_.front());
}

}  // namespace sluice::storage
