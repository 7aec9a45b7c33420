// JPEG by libjpeg-turbo, with Pillow's settings: accurate integer transform, smooth chroma.
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // required by jpeglib
#include <string>

#include <jpeglib.h>

#include <jerror.h>

#include "core/check.h"
#include "core/error.h"
#include "data/image/formats.h"

namespace sluice::data {
namespace {

constexpr int kMostScans = 500;  // in a progressive file; real ones have about ten

struct Decompression : jpeg_decompress_struct {
  Decompression() : jpeg_decompress_struct{} {}
  ~Decompression() { jpeg_destroy_decompress(this); }
  Decompression(const Decompression&) = delete;
  Decompression& operator=(const Decompression&) = delete;
};

// Reads one file. libjpeg requires that its error handler does not return: the handler jumps back to guarded().
class JpegReader {
 public:
  explicit JpegReader(EncodedBytes file) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { of(info).leave(); };
    errors_.emit_message = [](j_common_ptr info, int level) { of(info).take_message(level); };
    progress_.progress_monitor = [](j_common_ptr info) { of(info).check_scans(); };
    guarded([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, file.data(), file.size());
      jpeg_read_header(&info_, TRUE);
    });
    check_image_size(size());
    check_end();
  }

  [[nodiscard]] ImageSize size() const { return {info_.image_height, info_.image_width}; }

  Image read(const Box& box) {
    const bool is_cmyk = info_.num_components == 4;
    info_.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    guarded([&] { jpeg_start_decompress(&info_); });
    const std::int64_t first = skip_to(box);
    std::vector<std::uint8_t> row(std::size_t{info_.output_width} * info_.output_components);
    Image image({box.height, box.width}, 3);
    for (std::int64_t y = 0; y < box.height; ++y) {
      JSAMPROW to = row.data();
      guarded([&] { jpeg_read_scanlines(&info_, &to, 1); });
      const std::uint8_t* from = row.data() + (box.left - first) * info_.output_components;
      if (is_cmyk) {
        write_rgb(from, box.width, image.row(y));
      } else {
        std::copy_n(from, image.row_bytes(), image.row(y));
      }
    }
    return image;
  }

 private:
  static JpegReader& of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

  // `action` may be left by a jump, so it must own nothing that needs destruction.
  template <typename Action>
  void guarded(const Action& action) {
    if (setjmp(back_) != 0) throw DataError(message_.data());
    action();
  }

  [[noreturn]] void leave() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), message_.data());
    longjmp(back_, 1);
  }

  // Detects a truncated file even if the requested part is complete. Coded data never contains 0xff before 0xd9.
  void check_end() const {
    constexpr std::array<std::uint8_t, 2> kEnd{0xff, 0xd9};
    const EncodedBytes rest(info_.src->next_input_byte, info_.src->bytes_in_buffer);
    if (std::ranges::find_end(rest, kEnd).empty()) throw DataError("it ends before its last pixel");
  }

  // libjpeg fills a truncated file with grey and only warns; here that is an error. Pillow ignores other warnings, too.
  void take_message(int level) {
    if (level < 0 && errors_.msg_code == JWRN_JPEG_EOF) leave();
  }

  // Limits the scans: thousands of scans in a small file take minutes.
  void check_scans() {
    if (info_.input_scan_number <= kMostScans) return;
    std::snprintf(message_.data(), message_.size(), "more than %d scans", kMostScans);
    longjmp(back_, 1);
  }

  // Skips to the first row of the box and near its columns; returns the column at which rows begin. Smooth chroma needs
  // neighbouring pixels, so some are read beyond the box.
  std::int64_t skip_to(const Box& box) {
    constexpr std::int64_t kNeighbours = 4;
    const std::int64_t end = std::min<std::int64_t>(box.left + box.width + kNeighbours, info_.output_width);
    auto begin = static_cast<JDIMENSION>(std::max<std::int64_t>(box.left - kNeighbours, 0));
    auto width = static_cast<JDIMENSION>(end) - begin;
    guarded([&] {
      if (width < info_.output_width) jpeg_crop_scanline(&info_, &begin, &width);
      if (box.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.top));
    });
    return begin;
  }

  // Converts Adobe's inverted CMYK (255 is no ink) with Pillow's formula.
  static void write_rgb(const std::uint8_t* cmyk, std::int64_t pixels, std::uint8_t* rgb) {
    for (std::int64_t x = 0; x < pixels; ++x, cmyk += 4, rgb += 3) {
      for (int c = 0; c < 3; ++c) rgb[c] = product(cmyk[c], cmyk[3]);
    }
  }

  static std::uint8_t product(int cyan, int black) {
    const int rest = (255 - cyan) * black + 128;  // 255 times the share of black that the ink leaves
    return static_cast<std::uint8_t>(black - (((rest >> 8) + rest) >> 8));
  }

  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  Decompression info_;
  std::jmp_buf back_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
};

}  // namespace

ImageSize read_jpeg_size(EncodedBytes file) { return JpegReader(file).size(); }
Image decode_jpeg(EncodedBytes file, const Box& box) { return JpegReader(file).read(box); }

}  // namespace sluice::data
