// names: host names of a test, which getaddrinfo() of its program knows beside those of the system.
// Threads: any.
#pragma once

#include <string>
#include <vector>

namespace sluice::comm::test {

// The name has these addresses, in this order, but at the first `unknown_for` questions those of `until_then`; if there
// are none, it is not known then.
void set_host(const std::string& name, std::vector<std::string> addresses, int unknown_for = 0,
              std::vector<std::string> until_then = {});

// Since set_host().
[[nodiscard]] int questions_about(const std::string& name);

}  // namespace sluice::comm::test
