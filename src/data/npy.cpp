#include "data/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/concat.h"
#include "data/file.h"

namespace sluice::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeaderBytes = 1 << 16;
constexpr std::size_t kMostDimensions = 32;  // NumPy's limit before version 2

// Parses the header, a Python dictionary with three keys, for example
// {'descr': '|u1', 'fortran_order': False, 'shape': (60000, 28, 28), }
class Header {
 public:
  Header(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  NpyArray read() {
    expect("{");
    while (!take("}")) {
      const std::string key = read_word();
      expect(":");
      read_value(key);
      if (!take(",") && !rest_.starts_with('}')) reject("a comma");
    }
    if (!type_ || !shape_) reject("'descr', 'fortran_order' and 'shape'");
    return {.type = *type_, .shape = *shape_, .bytes = {}};
  }

 private:
  [[noreturn]] void reject(std::string_view expected) const {
    reject_file(name_, concat("its header is damaged: expected ", expected));
  }

  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  bool take(std::string_view what) {
    skip_space();
    const bool is_there = rest_.starts_with(what);
    if (is_there) rest_.remove_prefix(what.size());
    skip_space();
    return is_there;
  }
  void expect(std::string_view what) {
    if (!take(what)) reject(what);
  }

  std::string read_word() {
    skip_space();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) reject("a word in quotes");
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) reject("the end of a word");
    std::string word(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return word;
  }

  void read_value(const std::string& key) {
    if (key == "descr") {
      type_ = read_type();
    } else if (key == "fortran_order") {
      if (take("True")) reject_file(name_, "it is in Fortran's order; save numpy.ascontiguousarray() of it");
      expect("False");
    } else if (key == "shape") {
      shape_ = read_shape();
    } else {
      reject("a known key");
    }
  }

  std::string read_type() {
    skip_space();
    if (rest_.starts_with('[')) reject_file(name_, "its numbers are records; save one column as whole numbers");
    const std::string word = read_word();
    const bool is_whole = word.size() == 3 && (word[1] == 'u' || word[1] == 'i');
    const bool has_size = is_whole && std::string_view("1248").find(word[2]) != std::string_view::npos;
    if (!has_size || word[0] == '>' || (word[0] == '|' && word[2] != '1'))
      reject_file(name_,
                  concat("its numbers are of type '", word, "', expected little-endian whole numbers, such as '|u1'"));
    return word.substr(1);
  }

  std::vector<std::int64_t> read_shape() {
    std::vector<std::int64_t> shape;
    expect("(");
    while (!take(")")) {
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0 || shape.size() == kMostDimensions) reject("the size of a dimension");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      shape.push_back(size);
      if (!take(",") && !rest_.starts_with(')')) reject("the end of the shape");
    }
    return shape;
  }

  std::string_view rest_, name_;
  std::optional<std::string> type_;
  std::optional<std::vector<std::int64_t>> shape_;
};

std::string_view header_of(std::span<const std::uint8_t> file, std::string_view name) {
  constexpr std::size_t kVersion = 6, kLength = 8;
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) reject_file(name, "it does not begin like a NumPy file");
  if (file.size() < kLength + 4) reject_file(name, "it ends within its header");
  const int version = file[kVersion];
  if (version < 1 || version > 3) reject_file(name, concat("its format has version ", version, ", expected 1 to 3"));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= std::size_t{file[kLength + i]} << (8 * i);
  const std::size_t begin = kLength + length_bytes;
  if (length > kMostHeaderBytes)
    reject_file(name, concat("its header has ", length, " bytes, expected at most ", kMostHeaderBytes));
  if (file.size() - begin < length) reject_file(name, "it ends within its header");
  return text.substr(begin, length);
}

std::int64_t bytes_named_by(const NpyArray& array, std::string_view name) {
  std::int64_t bytes = array.type[1] - '0';
  for (const std::int64_t size : array.shape) {
    if (size > 0 && bytes > std::numeric_limits<std::int64_t>::max() / size)
      reject_file(name, "its header names more numbers than there can be");
    bytes *= size;
  }
  return bytes;
}

template <typename T>
std::vector<std::int64_t> widened(const NpyArray& array, std::string_view name) {
  std::vector<std::int64_t> numbers(array.bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T number;
    std::memcpy(&number, array.bytes.data() + i * sizeof(T), sizeof(T));
    if (!std::in_range<std::int64_t>(number))
      reject_file(name, concat("number ", i, " is ", number, ", too large for a signed 64-bit integer"));
    numbers[i] = static_cast<std::int64_t>(number);
  }
  return numbers;
}

}  // namespace

NpyArray parse_npy(std::span<const std::uint8_t> file, std::string_view name) {
  const std::string_view header = header_of(file, name);
  NpyArray array = Header(header, name).read();
  const std::size_t begin =
      static_cast<std::size_t>(reinterpret_cast<const std::uint8_t*>(header.data()) - file.data()) + header.size();
  array.bytes = file.subspan(begin);
  const std::int64_t expected = bytes_named_by(array, name);
  if (std::ssize(array.bytes) != expected)
    reject_file(name, concat("found ", array.bytes.size(), " bytes of numbers, expected ", expected));
  return array;
}

std::vector<std::int64_t> whole_numbers(const NpyArray& array, std::string_view name) {
  const bool is_signed = array.type[0] == 'i';
  switch (array.type[1]) {
    case '1': return is_signed ? widened<std::int8_t>(array, name) : widened<std::uint8_t>(array, name);
    case '2': return is_signed ? widened<std::int16_t>(array, name) : widened<std::uint16_t>(array, name);
    case '4': return is_signed ? widened<std::int32_t>(array, name) : widened<std::uint32_t>(array, name);
    default: return is_signed ? widened<std::int64_t>(array, name) : widened<std::uint64_t>(array, name);
  }
}

}  // namespace sluice::data
