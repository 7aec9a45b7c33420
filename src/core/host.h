// host: the name of this machine, for messages and file names.
#pragma once

#include <string>

namespace sluice {

[[nodiscard]] std::string host_name();  // "localhost" where it has none

}  // namespace sluice
