// PNG by libpng. Rows are decoded from the top to the end of the box; an interlaced file is decoded completely.
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>

#include <png.h>

#include "core/error.h"
#include "data/image/formats.h"

namespace sluice::data {
namespace {

constexpr png_alloc_size_t kMostChunkBytes = std::size_t{4} << 20;  // text chunks, colour profiles

struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;

  PngState() = default;
  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
  PngState(const PngState&) = delete;
  PngState& operator=(const PngState&) = delete;
};

class PngReader {
 public:
  explicit PngReader(EncodedBytes file) : rest_(file) {
    state_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::take_error, &PngReader::take_warning);
    if (state_.png != nullptr) state_.info = png_create_info_struct(state_.png);
    if (state_.info == nullptr) throw std::bad_alloc();
    check_chunks(file);
    guarded([&] { read_header(); });
    check_image_size(size());
  }

  [[nodiscard]] ImageSize size() const {
    return {png_get_image_height(png(), info()), png_get_image_width(png(), info())};
  }

  Image read(const Box& box) {
    guarded([&] { ask_for_rgb(); });
    return passes_ == 1 ? read_rows(box) : read_interlaced(box);
  }

 private:
  [[nodiscard]] png_structp png() const { return state_.png; }
  [[nodiscard]] png_infop info() const { return state_.info; }
  // Detects truncated data even if the requested part is complete.
  static void check_chunks(EncodedBytes file) {
    constexpr std::size_t kSignature = 8, kHead = 8, kChecksum = 4;
    constexpr std::string_view kData = "IDAT";
    for (std::size_t at = kSignature; at + kHead <= file.size();) {
      const auto head = file.subspan(at, kHead);
      const std::size_t length = std::size_t{head[0]} << 24U | head[1] << 16U | head[2] << 8U | head[3];
      at += kHead + length + kChecksum;
      if (at > file.size() && std::ranges::equal(head.subspan(4), kData)) throw DataError("the file ends too early");
    }
  }

  static PngReader& of(png_structp png) { return *static_cast<PngReader*>(png_get_error_ptr(png)); }

  template <typename Action>
  void guarded(const Action& action) {
    if (setjmp(back_) != 0) throw DataError(message_.data());
    action();
  }

  static void take_error(png_structp png, png_const_charp what) {
    PngReader& reader = of(png);
    std::snprintf(reader.message_.data(), reader.message_.size(), "%s", what);
    std::longjmp(reader.back_, 1);
  }
  static void take_warning(png_structp, png_const_charp) {}

  static void take_bytes(png_structp png, png_bytep to, std::size_t count) {
    EncodedBytes& rest = of(png).rest_;
    if (rest.size() < count) png_error(png, "the file ends too early");
    std::memcpy(to, rest.data(), count);
    rest = rest.subspan(count);
  }

  void read_header() {
    png_set_read_fn(png(), nullptr, &PngReader::take_bytes);
    png_set_user_limits(png(), static_cast<png_uint_32>(kMostPixels), static_cast<png_uint_32>(kMostPixels));
    png_set_chunk_malloc_max(png(), kMostChunkBytes);
    png_read_info(png(), info());
  }

  void ask_for_rgb() {
    png_set_palette_to_rgb(png());
    png_set_strip_16(png());
    if (png_get_color_type(png(), info()) == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png());
    png_set_gray_to_rgb(png());
    png_set_strip_alpha(png());
    passes_ = png_set_interlace_handling(png());
    png_read_update_info(png(), info());
    if (png_get_rowbytes(png(), info()) != std::size_t{png_get_image_width(png(), info())} * 3)
      png_error(png(), "its kind of pixels is not known");
  }

  Image read_rows(const Box& box) {
    std::vector<std::uint8_t> row(png_get_rowbytes(png(), info()));
    Image image({box.height, box.width}, 3);
    for (std::int64_t y = 0; y < box.top + box.height; ++y) {
      guarded([&] { png_read_row(png(), row.data(), nullptr); });
      if (y >= box.top) std::copy_n(row.data() + box.left * 3, image.row_bytes(), image.row(y - box.top));
    }
    return image;
  }

  Image read_interlaced(const Box& box) {
    Image whole(size(), 3);
    guarded([&] {
      for (int pass = 0; pass < passes_; ++pass) {
        for (std::int64_t y = 0; y < whole.size.height; ++y) png_read_row(png(), whole.row(y), nullptr);
      }
    });
    return part_of(whole, box);
  }

  EncodedBytes rest_;
  PngState state_;
  int passes_ = 1;
  std::jmp_buf back_{};
  std::array<char, 200> message_{};
};

}  // namespace

ImageSize read_png_size(EncodedBytes file) { return PngReader(file).size(); }
Image decode_png(EncodedBytes file, const Box& box) { return PngReader(file).read(box); }

}  // namespace sluice::data
