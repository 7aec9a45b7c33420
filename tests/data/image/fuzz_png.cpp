// Any bytes as a PNG file: decoded, or refused with one DataError.
#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "data/image/formats.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace sluice::data;
  const EncodedBytes file(bytes, size);
  try {
    const ImageSize whole = read_png_size(file);
    if (whole.height * whole.width > 4'000'000) return 0;  // larger ones only take longer
    const Box part{whole.height / 3, whole.width / 3, (whole.height + 1) / 2, (whole.width + 1) / 2};
    if (decode_png(file, part).size != ImageSize{part.height, part.width}) std::abort();
  } catch (const sluice::DataError&) {
  }
  return 0;
}
