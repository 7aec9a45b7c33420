#include "data/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "data/file.h"

namespace sluice::data {
namespace {

constexpr std::int64_t kBlock = 512;
constexpr char kHardLink = '1', kSymbolicLink = '2';
constexpr std::int64_t kMostName = std::int64_t{1} << 16;  // limit of a long name and of a pax header's records

using Block = std::array<std::uint8_t, kBlock>;

std::string_view field(const Block& block, std::size_t begin, std::size_t length) {
  const std::string_view whole(reinterpret_cast<const char*>(block.data()) + begin, length);
  return whole.substr(0, std::min(whole.find('\0'), whole.size()));
}

// GNU tar may store a member as ./a.jpg and a link to it as a.jpg, or the reverse.
std::string plain(std::string_view name) { return std::filesystem::path(name).lexically_normal(); }

std::optional<std::int64_t> octal(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 8);
  const bool is_whole = end == text.data() + text.size() && error == std::errc{} && !text.empty();
  return is_whole && number >= 0 ? std::optional(number) : std::nullopt;
}

// GNU's format for numbers beyond eight octal digits: a byte of 0x80, then big-endian.
std::optional<std::int64_t> base_256(const Block& block, std::size_t begin, std::size_t length) {
  if (block[begin] != 0x80) return std::nullopt;
  std::uint64_t number = 0;
  for (std::size_t i = begin + 1; i < begin + length; ++i) {
    if (number >> 54U != 0) return std::nullopt;
    number = number << 8U | block[i];
  }
  return static_cast<std::int64_t>(number);
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

bool has_right_checksum(const Block& block) {
  constexpr std::size_t kBegin = 148, kEnd = 156;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) sum += i >= kBegin && i < kEnd ? ' ' : block[i];
  return octal(field(block, kBegin, kEnd - kBegin)) == sum;
}

// Attributes that a pax header sets for the next member: records "LENGTH KEY=VALUE\n".
struct Pax {
  std::optional<std::string> path, link_path;
  std::optional<std::int64_t> size;
};

class Walk {
 public:
  Walk(std::int64_t size, const ReadAt& read, const std::string& name) : size_(size), read_(read), name_(name) {}

  TarListing list() {
    std::vector<TarMember> members;
    check_start();
    while (at_ + kBlock <= size_) {
      Block block;
      read_(at_, block);
      if (is_zero(block)) {
        check_end();
        return {std::move(members), /*has_end=*/true};
      }
      if (!has_right_checksum(block)) damaged("its header is not that of a tar file");
      if (auto member = take(block)) {
        if (!member->is_symbolic_link) extents_[plain(member->name)] = {member->offset, member->size};
        members.push_back(*std::move(member));
      }
    }
    if (at_ != size_) damaged("it ends within a header");
    return {std::move(members), /*has_end=*/false};
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const { reject_file(name_, concat("byte ", at_, ": ", what)); }

  void check_start() const {
    std::array<std::uint8_t, 4> begin{};
    if (size_ < kBlock) reject_file(name_, concat("it has ", size_, " bytes, too few for a tar file"));
    read_(0, begin);
    const bool is_packed = (begin[0] == 0x1f && begin[1] == 0x8b) || (begin[0] == 'B' && begin[1] == 'Z') ||
                           (begin[0] == 0xfd && begin[1] == '7') || (begin[0] == 0x28 && begin[1] == 0xb5);
    if (is_packed) {
      reject_file(name_, "it is compressed, so single pictures cannot be read", "unpack it to a plain tar file");
    }
  }

  // A block of zeros ends an archive, and only zeros may follow: `cat a.tar b.tar` would hide the files of b.
  void check_end() const {
    std::array<std::uint8_t, 128 * kBlock> buffer{};
    for (std::int64_t at = at_; at < size_;) {
      const auto bytes = std::span(buffer).first(static_cast<std::size_t>(std::min(std::ssize(buffer), size_ - at)));
      read_(at, bytes);
      if (!is_zero(bytes)) {
        throw DataError(name_, ": another archive follows the end of the first one (byte ", at_,
                        ") and would not be read; join archives with tar --concatenate");
      }
      at += std::ssize(bytes);
    }
  }

  // Reads a header and moves on. Empty: not a file, or attributes of the next member.
  std::optional<TarMember> take(const Block& block) {
    const auto type = static_cast<char>(block[156]);
    const bool is_file = type == '0' || type == '\0' || type == '7';
    const std::int64_t size = data_bytes(block, type, is_file), begin = at_ + kBlock;
    if (type == 'S') damaged("sparse members are not supported; pack the files again without --sparse");
    std::optional<TarMember> member;
    if (type == 'L') {
      long_name_ = text_at(begin, size);
      long_name_.resize(std::min(long_name_.find('\0'), long_name_.size()));
    } else if (type == 'K') {
      long_link_ = text_at(begin, size);
      long_link_.resize(std::min(long_link_.find('\0'), long_link_.size()));
    } else if (type == 'x') {
      take_pax(text_at(begin, size));
    } else if (type != 'g') {
      if (is_file) member = TarMember{name_in(block), begin, size};
      if (type == kHardLink) member = linked(name_in(block), link_in(block));
      if (type == kSymbolicLink) member = TarMember{.name = name_in(block), .is_symbolic_link = true};
      long_name_.clear();
      long_link_.clear();
      pax_ = {};
    }
    at_ = begin + (size + kBlock - 1) / kBlock * kBlock;
    if (at_ > size_) reject_file(name_, concat("byte ", size_, ": it is cut off after its last member"));
    return member;
  }

  [[nodiscard]] TarMember linked(std::string name, const std::string& target) const {
    const auto extent = extents_.find(plain(target));
    if (extent == extents_.end())
      damaged(concat(name, " is a hard link to ", target, ", which is not earlier in the archive"));
    return {std::move(name), extent->second.first, extent->second.second};
  }

  [[nodiscard]] std::int64_t data_bytes(const Block& block, char type, bool is_file) const {
    const std::int64_t stated = size_in(block);
    const bool has_data =
        type < '1' || type > '6';  // links, devices and folders have no data, whatever size they state
    const std::int64_t size = is_file && pax_.size ? *pax_.size : has_data ? stated : 0;
    if (size > size_ - at_ - kBlock) damaged(concat("a member of ", size, " bytes is cut off"));
    return size;
  }

  [[nodiscard]] std::int64_t size_in(const Block& block) const {
    constexpr std::size_t kBegin = 124, kLength = 12;
    const auto size =
        (block[kBegin] & 0x80U) != 0 ? base_256(block, kBegin, kLength) : octal(field(block, kBegin, kLength));
    if (!size) damaged("the size of a member is not a number");
    return *size;
  }

  [[nodiscard]] std::string name_in(const Block& block) const {
    if (pax_.path) return *pax_.path;
    if (!long_name_.empty()) return long_name_;
    const std::string_view name = field(block, 0, 100), prefix = field(block, 345, 155);
    const bool has_prefix = field(block, 257, 6) == "ustar" && block[262] == 0 && !prefix.empty();
    return has_prefix ? concat(prefix, "/", name) : std::string(name);
  }

  [[nodiscard]] std::string link_in(const Block& block) const {
    if (pax_.link_path) return *pax_.link_path;
    return long_link_.empty() ? std::string(field(block, 157, 100)) : long_link_;
  }

  [[nodiscard]] std::string text_at(std::int64_t begin, std::int64_t size) const {
    if (size > kMostName) damaged(concat("a name or header has ", size, " bytes, expected at most ", kMostName));
    std::string text(static_cast<std::size_t>(size), '\0');
    read_(begin, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
    return text;
  }

  void take_pax(std::string_view records) {
    while (!records.empty()) {
      std::size_t length = 0;
      const auto [end, error] = std::from_chars(records.data(), records.data() + records.size(), length);
      const auto digits = static_cast<std::size_t>(end - records.data());
      if (error != std::errc{} || length <= digits + 1 || length > records.size() || records[length - 1] != '\n')
        damaged("its pax header cannot be read");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) damaged("its pax header cannot be read");
      set_pax(record.substr(0, equals), record.substr(equals + 1));
      records.remove_prefix(length);
    }
  }

  void set_pax(std::string_view key, std::string_view value) {
    if (key == "path") pax_.path = value.substr(0, std::min(value.find('\0'), value.size()));
    if (key == "linkpath") pax_.link_path = value.substr(0, std::min(value.find('\0'), value.size()));
    if (key.starts_with("GNU.sparse"))
      damaged("sparse members are not supported; pack the files again without --sparse");
    if (key != "size") return;
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc{} || end != value.data() + value.size() || size < 0)
      damaged("its pax header has a size that is not a number");
    pax_.size = size;
  }

  const std::int64_t size_;
  const ReadAt& read_;
  const std::string& name_;
  std::int64_t at_ = 0;
  std::string long_name_;  // of the next member
  std::string long_link_;  // link target of the next member
  Pax pax_;
  std::unordered_map<std::string, std::pair<std::int64_t, std::int64_t>> extents_;  // offset and size by plain name
};

}  // namespace

TarListing list_tar(std::int64_t size, const ReadAt& read, const std::string& name) {
  return Walk(size, read, name).list();
}

}  // namespace sluice::data
