// fuzz_format: any bytes as a picture in one format: a part of it is decoded, or one DataError is thrown.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "core/error.h"
#include "data/image/formats.h"

namespace sluice::data {

template <typename ReadSize, typename Decode>
void decode_any(const std::uint8_t* bytes, std::size_t size, const ReadSize& read_size, const Decode& decode) {
  const EncodedBytes file(bytes, size);
  try {
    const ImageSize whole = read_size(file);
    if (whole.height * whole.width > 4'000'000) return;  // larger ones only take longer
    const Box part{whole.height / 3, whole.width / 3, (whole.height + 1) / 2, (whole.width + 1) / 2};
    if (decode(file, part).size != ImageSize{part.height, part.width}) std::abort();
  } catch (const DataError&) {
  }
}

}  // namespace sluice::data
