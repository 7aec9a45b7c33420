// safetensors_sax: the JSON of a safetensors header, read event by event. A DOM would keep the last of two equal keys
// without a word, so nlohmann's SAX interface is used. Knows the grammar of the header only; what dtypes, shapes and
// offsets mean is checked by safetensors_header.cpp, the only user. Memory: bounded by the size of the text.
// Errors: CheckpointError with what is wrong, without the name of the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::storage {

struct RawTensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

struct RawHeader {
  std::map<std::string, std::string> metadata;
  std::vector<RawTensorEntry> entries;  // in the order of the text
};

[[nodiscard]] RawHeader parse_raw_header(std::string_view text);

}  // namespace sluice::storage
