// WebP by libwebp, decoded completely; for an animation the first frame on its canvas.
#include <memory>

#include <webp/decode.h>
#include <webp/demux.h>

#include "core/error.h"
#include "data/image/formats.h"

namespace sluice::data {
namespace {

WebPBitstreamFeatures read_features(EncodedBytes file) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(file.data(), file.size(), &features) != VP8_STATUS_OK)
    throw DataError("its header is damaged or cut off");
  check_image_size({features.height, features.width});
  return features;
}

struct DeleteDecoder {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

Image first_frame(EncodedBytes file, const ImageSize& size) {
  const WebPData data{file.data(), file.size()};
  const std::unique_ptr<WebPAnimDecoder, DeleteDecoder> decoder(WebPAnimDecoderNew(&data, nullptr));
  std::uint8_t* rgba = nullptr;
  int time_ms = 0;
  if (!decoder || WebPAnimDecoderGetNext(decoder.get(), &rgba, &time_ms) == 0)
    throw DataError("its first frame is damaged or cut off");
  Image image(size, 3);
  for (std::int64_t i = 0; i < size.height * size.width; ++i) std::copy_n(rgba + i * 4, 3, image.pixels.data() + i * 3);
  return image;
}

}  // namespace

ImageSize read_webp_size(EncodedBytes file) {
  const WebPBitstreamFeatures features = read_features(file);
  return {features.height, features.width};
}

Image decode_webp(EncodedBytes file, const Box& box) {
  const WebPBitstreamFeatures features = read_features(file);
  const ImageSize size{features.height, features.width};
  if (features.has_animation != 0) return part_of(first_frame(file, size), box);
  Image whole(size, 3);
  if (WebPDecodeRGBInto(file.data(), file.size(), whole.pixels.data(), whole.pixels.size(),
                        static_cast<int>(whole.row_bytes())) == nullptr) {
    throw DataError("its pixels are damaged or cut off");
  }
  return part_of(whole, box);
}

}  // namespace sluice::data
