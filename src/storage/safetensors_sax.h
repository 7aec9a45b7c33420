// safetensors_sax: parses the JSON of a safetensors header with nlohmann's SAX interface, because its DOM silently
// accepts duplicate keys. Checks the grammar only. Errors: CheckpointError without the file name.
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
  std::vector<RawTensorEntry> entries;
};

[[nodiscard]] RawHeader parse_raw_header(std::string_view text);

}  // namespace sluice::storage
