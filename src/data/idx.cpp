#include "data/idx.h"

#define ZLIB_CONST  // makes next_in a pointer to const
#include <zlib.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <memory>
#include <optional>
#include <string>

#include "core/concat.h"
#include "data/file.h"

// tests/data/fuzz_idx.cpp builds this file: include nothing that needs LibTorch or a compiler newer than clang 14.

namespace sluice::data {
namespace {

constexpr std::uint64_t kMaxIdxBytes = std::uint64_t{1}
                                       << 30;  // of a file and of its unpacked content; EMNIST has up to 0.6 GB
constexpr std::uint64_t kMaxSide = 1 << 14;
constexpr std::uint64_t kMaxDeflateRatio = 1032;  // zlib's limit of expansion

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::size_t read(std::span<std::uint8_t> out) = 0;
  [[nodiscard]] virtual std::uint64_t max_remaining() const = 0;
};

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  std::size_t read(std::span<std::uint8_t> out) override {
    const std::size_t count = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), count, out.begin());
    rest_ = rest_.subspan(count);
    return count;
  }
  [[nodiscard]] std::uint64_t max_remaining() const override { return rest_.size(); }

 private:
  std::span<const std::uint8_t> rest_;
};

bool starts_gzip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::span<const std::uint8_t> bytes, std::string_view name) : bytes_(bytes), name_(name) {
    constexpr int kGzipOnly = 15 + 16;  // window bits and gzip wrapper
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) reject_download(name_, "zlib could not be started");
    stream_.next_in = bytes.data();
    stream_.avail_in = static_cast<uInt>(bytes.size());
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<std::uint8_t> out) override {
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out > 0 && !at_end_) inflate_some();
    return out.size() - stream_.avail_out;
  }
  [[nodiscard]] std::uint64_t max_remaining() const override {
    return (std::uint64_t{stream_.avail_in} + 64) * kMaxDeflateRatio;  // 64: bytes that zlib may have buffered
  }

 private:
  [[nodiscard]] std::size_t position() const { return bytes_.size() - stream_.avail_in; }

  void inflate_some() {
    switch (inflate(&stream_, Z_NO_FLUSH)) {
      case Z_OK: return;
      case Z_STREAM_END: return end_member();
      case Z_BUF_ERROR:
        reject_download(name_, concat("the gzip data ends early, at byte ", position(), " of the compressed file"));
      default:
        reject_download(name_, concat("corrupt gzip data at byte ", position(), " of the compressed file (zlib: ",
                                      stream_.msg != nullptr ? stream_.msg : "no reason given", ")"));
    }
  }

  void end_member() {
    const auto rest = bytes_.subspan(position());
    if (rest.empty()) {
      at_end_ = true;
    } else if (!starts_gzip(rest) || inflateReset(&stream_) != Z_OK) {
      reject_download(name_,
                      concat("the gzip data ends at byte ", position(), " of the compressed file, but ", rest.size(),
                             " more bytes follow: damaged in the middle, or something was appended"));
    }
  }

  std::span<const std::uint8_t> bytes_;
  std::string_view name_;
  z_stream stream_{};
  bool at_end_ = false;
};

std::uint32_t big_endian(std::span<const std::uint8_t, 4> b) {
  return (std::uint32_t{b[0]} << 24) | (std::uint32_t{b[1]} << 16) | (std::uint32_t{b[2]} << 8) | b[3];
}

std::string hex(std::uint32_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << std::setw(8) << std::setfill('0') << value;
  return std::move(out).str();
}

std::uint32_t read_word(ByteSource& source, std::string_view name, std::size_t offset, std::string_view what) {
  std::array<std::uint8_t, 4> word{};
  const std::size_t found = source.read(word);
  if (found < word.size()) {
    reject_download(name,
                    concat("byte ", offset, ": the header ends early: expected 4 bytes of ", what, ", found ", found));
  }
  return big_endian(word);
}

void check_magic(std::uint32_t magic, std::string_view name, IdxKind kind) {
  constexpr std::uint32_t kLabelsMagic = 0x00000801;
  constexpr std::uint32_t kImagesMagic = 0x00000803;
  const bool images = kind == IdxKind::kImages;
  if (magic == (images ? kImagesMagic : kLabelsMagic)) return;
  const std::string_view hint = magic == kImagesMagic   ? " (a file of images)"
                                : magic == kLabelsMagic ? " (a file of labels)"
                                                        : "";
  reject_download(name, concat("byte 0: expected magic ", hex(images ? kImagesMagic : kLabelsMagic),
                               images ? " (images)" : " (labels)", ", found ", hex(magic), hint));
}

// Reads the sizes in the header and checks their product against the bytes that can follow.
std::vector<std::int64_t> read_dims(ByteSource& source, std::string_view name, IdxKind kind) {
  constexpr std::array<std::string_view, 3> kWhat = {"count", "height", "width"};
  std::vector<std::int64_t> dims;
  std::uint64_t total = 1;
  for (std::size_t i = 0; i < (kind == IdxKind::kImages ? 3U : 1U); ++i) {
    const std::size_t offset = 4 + 4 * i;
    const std::uint64_t dim = read_word(source, name, offset, kWhat[i]);
    const std::uint64_t limit = i == 0 ? kMaxIdxBytes : kMaxSide;
    total *= dim;  // cannot overflow: at most 2^30 * 2^32
    if (dim == 0 || dim > limit || total > kMaxIdxBytes) {
      reject_download(name, concat("byte ", offset, ": the ", kWhat[i], " is ", dim, ", expected 1 to ", limit,
                                   " and at most ", kMaxIdxBytes, " bytes in all"));
    }
    dims.push_back(static_cast<std::int64_t>(dim));
  }
  return dims;
}

IdxArray parse(ByteSource& source, std::string_view name, IdxKind kind) {
  check_magic(read_word(source, name, 0, "magic"), name, kind);
  IdxArray array{.dims = read_dims(source, name, kind), .values = {}};
  std::size_t total = 1;
  for (const auto dim : array.dims) total *= static_cast<std::size_t>(dim);
  const std::size_t offset = 4 + 4 * array.dims.size();

  const auto ends_early = [&](std::string_view found) {
    reject_download(name, concat("byte ", offset, ": the data ends early: expected ", total, " bytes, found ", found));
  };
  if (source.max_remaining() < total) ends_early(concat("at most ", source.max_remaining()));
  array.values.resize(total);
  const std::size_t found = source.read(array.values);
  if (found < total) ends_early(concat(found));

  std::array<std::uint8_t, 1> extra{};
  if (source.read(extra) != 0) {
    reject_download(name, concat("byte ", offset + total, ": more bytes follow the ", total, " bytes of data"));
  }
  return array;
}

}  // namespace

IdxArray parse_idx(std::span<const std::uint8_t> bytes, std::string_view name, IdxKind kind) {
  if (bytes.size() > kMaxIdxBytes) {
    reject_download(name, concat("found ", bytes.size(), " bytes, expected at most ", kMaxIdxBytes));
  }
  if (starts_gzip(bytes)) {
    GzipSource source(bytes, name);
    return parse(source, name, kind);
  }
  PlainSource source(bytes);
  return parse(source, name, kind);
}

IdxArray read_idx(const std::filesystem::path& file, IdxKind kind) {
  const std::vector<std::uint8_t> bytes = read_bytes(file, kMaxIdxBytes);
  return parse_idx(bytes, file.native(), kind);
}

}  // namespace sluice::data
