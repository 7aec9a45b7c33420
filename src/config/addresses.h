// addresses: the list in ps.address, as words. Not here: whether each is HOST:PORT (train/serve/server_role.h). Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::config {

// Without the blanks around them; an entry may be empty. None where the list is empty.
[[nodiscard]] std::vector<std::string> addresses_in(std::string_view list);

}  // namespace sluice::config
