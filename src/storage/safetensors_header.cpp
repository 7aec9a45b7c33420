#include "storage/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "storage/safetensors_sax.h"

namespace sluice::storage {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kAlignment = 8;
constexpr std::size_t kMaxDimensions = 64;  // limit of ATen's iterators
constexpr std::string_view kMetadataKey = "__metadata__";

struct Dtype {
  c10::ScalarType type;
  std::string_view name;
};
// The official writer's order (alignment, then its own order), so that files are equal byte by byte.
constexpr std::array kDtypes{
    Dtype{c10::ScalarType::Long, "I64"},      Dtype{c10::ScalarType::Double, "F64"},
    Dtype{c10::ScalarType::Float, "F32"},     Dtype{c10::ScalarType::Int, "I32"},
    Dtype{c10::ScalarType::BFloat16, "BF16"}, Dtype{c10::ScalarType::Half, "F16"},
    Dtype{c10::ScalarType::Short, "I16"},     Dtype{c10::ScalarType::Char, "I8"},
    Dtype{c10::ScalarType::Byte, "U8"},       Dtype{c10::ScalarType::Bool, "BOOL"},
};

[[noreturn]] void fail(std::string_view where, std::string_view what) {
  throw CheckpointError(where, " is not a valid safetensors file: ", what, "; fetch or save it again");
}

// Detects output of torch.save: a ZIP archive, or a pickle of protocol 2 or later.
bool looks_like_pickle(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  constexpr char kProtocol = '\x80';
  return text.starts_with("PK\x03\x04") || (text.size() >= 2 && text[0] == kProtocol && text[1] >= 2 && text[1] <= 5);
}

[[noreturn]] void fail_by_length(std::span<const std::byte> file, std::string_view where, const std::string& what) {
  if (!looks_like_pickle(file)) fail(where, what);
  throw CheckpointError(
      concat(where, " is a PyTorch pickle (.pth, .pt, .bin), which Sluice does not read; convert it to safetensors: ",
             "`python scripts/convert_weights.py FILE OUT` does that (docs/how-to/weights.md)"));
}

// The bytes of a tensor, nothing on overflow. Zero sizes count as one for overflow, as strides are computed that way.
std::optional<std::uint64_t> bytes_of(const std::vector<std::uint64_t>& shape, std::uint64_t element_size) {
  std::uint64_t product = element_size;
  bool empty = false;
  for (const auto size : shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(product, std::max<std::uint64_t>(size, 1), &product)) return std::nullopt;
  }
  if (product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
  return empty ? 0 : product;
}

TensorEntry to_entry(const RawTensorEntry& raw, std::string_view where) {
  const auto tensor = concat("tensor ", quoted_name(raw.name));
  const auto dtype = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == raw.dtype; });
  if (dtype == kDtypes.end()) {
    fail(where, concat(tensor, " has dtype ", quoted_name(raw.dtype), ", expected one of ", safetensors_dtypes()));
  }
  if (raw.shape.size() > kMaxDimensions) {
    fail(where, concat(tensor, " has ", raw.shape.size(), " dimensions, expected at most ", kMaxDimensions));
  }
  if (raw.offsets.size() != 2) {
    fail(where, concat(tensor, " has ", raw.offsets.size(), " data_offsets, expected 2"));
  }
  const auto bytes = bytes_of(raw.shape, c10::elementSize(dtype->type));
  if (!bytes) fail(where, concat(tensor, " has a shape whose size overflows"));
  const auto [begin, end] = std::tuple(raw.offsets[0], raw.offsets[1]);
  if (end < begin || end - begin != *bytes) {
    fail(where, concat(tensor, " has data_offsets [", begin, ", ", end, "], expected ", *bytes, " bytes by its shape"));
  }
  return {raw.name, dtype->type, std::vector<std::int64_t>(raw.shape.begin(), raw.shape.end()), begin, end};
}

void check_tiling(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes, std::string_view where) {
  std::uint64_t expected = 0;
  for (const auto& entry : entries) {
    if (entry.begin != expected) {
      fail(where, concat("tensor ", quoted_name(entry.name), " begins at ", entry.begin, ", expected ", expected,
                         entry.begin < expected ? " (it overlaps another)" : " (a hole)"));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    fail(where, concat("it has ", data_bytes, " bytes of data, expected ", expected,
                       data_bytes < expected ? " (truncated)" : " (bytes follow the last tensor)"));
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) fail(where, concat("it has ", file.size(), " bytes, expected at least 8"));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes)
    fail_by_length(file, where, concat("its header has ", length, " bytes, expected at most 100000000"));
  if (length > file.size() - kLengthBytes) {
    fail_by_length(file, where,
                   concat("its header has ", length, " bytes, but the file ends after ", file.size(), " (truncated)"));
  }
  std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) fail(where, "its header does not begin with '{'");
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  if (!text.ends_with('}')) fail(where, "its header does not end with '}' and spaces");

  RawHeader raw;
  try {
    raw = parse_raw_header(text);
  } catch (const Error& error) {
    fail(where, error.what());
  }
  SafetensorsHeader header{std::move(raw.metadata), {}, kLengthBytes + length};
  for (const auto& entry : raw.entries) header.entries.push_back(to_entry(entry, where));
  std::sort(header.entries.begin(), header.entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(header.entries, file.size() - header.data_begin, where);
  return header;
}

std::string encode_safetensors_header(const std::map<std::string, std::string>& metadata,
                                      const std::vector<TensorEntry>& entries) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[std::string(kMetadataKey)] = metadata;
  for (const auto& entry : entries) {
    const auto rank = safetensors_rank(entry.dtype);
    check(rank.has_value() && entry.name != kMetadataKey, "a dtype and a name that a safetensors header can hold");
    json[entry.name] = {{"dtype", kDtypes[static_cast<std::size_t>(*rank)].name},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception& error) {
    check(false, concat("UTF-8 tensor names and metadata, not ", error.what()));
  }
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();
  check(length <= kMaxHeaderBytes, "a safetensors header of at most 100 MB");
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

std::optional<int> safetensors_rank(c10::ScalarType dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.type == dtype; });
  if (found == kDtypes.end()) return std::nullopt;
  return static_cast<int>(found - kDtypes.begin());
}

std::string safetensors_dtypes() {
  std::string names;
  for (const auto& dtype : kDtypes) names += concat(names.empty() ? "" : " ", dtype.name);
  return names;
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kMaxShown = 120;
  const std::string shown(name.substr(0, kMaxShown));
  return nlohmann::json(shown).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
         (name.size() > kMaxShown ? "..." : "");
}

}  // namespace sluice::storage
