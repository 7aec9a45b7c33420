#include "config/addresses.h"

#include "config/assignment.h"

namespace sluice::config {

std::vector<std::string> addresses_in(std::string_view list) {
  std::vector<std::string> addresses;
  if (trimmed(list).empty()) return addresses;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = list.find(',');
    addresses.push_back(trimmed(list.substr(0, comma)));
    if (comma != std::string_view::npos) list.remove_prefix(comma + 1);
  }
  return addresses;
}

}  // namespace sluice::config
