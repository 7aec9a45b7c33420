#include "profiler/fingerprint.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

#include "profiler/fingerprint_fields.h"

namespace sluice::profiler {

nlohmann::ordered_json to_json(const Fingerprint& fingerprint) {
  Fingerprint copy = fingerprint;
  return JsonWriter::object_of(copy);
}

std::string short_hash(const Fingerprint& fingerprint) {
  const std::string text = to_json(fingerprint).dump();
  const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return digits.data();
}

std::vector<std::string> differences(const Fingerprint& a, const Fingerprint& b) {
  const nlohmann::ordered_json of_a = to_json(a), of_b = to_json(b);
  std::vector<std::string> names;
  for (const auto& [name, value] : of_a.items()) {
    if (!of_b.contains(name) || value != of_b.at(name)) names.push_back(name);
  }
  for (const auto& [name, value] : of_b.items()) {
    if (!of_a.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace sluice::profiler
