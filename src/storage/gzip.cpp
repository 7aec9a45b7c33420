#include "storage/gzip.h"

#include <zlib.h>
#include <limits>

#include "core/check.h"
#include "core/error.h"

namespace sluice::storage {

std::string gzip(std::string_view text) {
  constexpr int kGzip = 15 + 16;  // window bits + flag for the gzip format
  constexpr int kMemory = 8;
  check(text.size() < std::numeric_limits<uInt>::max(), "less than 4 GiB for one call of zlib");
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
    throw OutOfMemoryError("there is not enough memory to compress a file");
  std::string result(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int outcome = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  check(outcome == Z_STREAM_END, "compressed text within the bound that zlib reported");
  return result;
}

}  // namespace sluice::storage
