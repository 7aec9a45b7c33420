#include "data/file.h"

#include <fstream>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::data {

void reject_file(std::string_view name, const std::string& what) {
  throw DataError(concat(name, ": ", what, "; fetch the file again or point data.path at an intact copy"));
}

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& file, std::uint64_t max_bytes) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(file, error);
  if (error) reject_file(file.native(), concat("the file cannot be read (", error.message(), ")"));
  if (size > max_bytes) reject_file(file.native(), concat(size, " bytes found, at most ", max_bytes, " expected"));
  std::vector<std::uint8_t> bytes(size);
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!in) reject_file(file.native(), concat("reading ended after ", in.gcount(), " of ", size, " bytes"));
  return bytes;
}

}  // namespace sluice::data
