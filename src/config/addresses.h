// addresses: splits ps.address into its entries. train/serve/server_role.h checks that each entry is HOST:PORT.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

// An entry may be empty. An empty list gives no entries.
[[nodiscard]] std::vector<std::string> addresses_in(std::string_view list);

}  // namespace sluice::config
