// names: host names that getaddrinfo() of a test program resolves beside the system's. Threads: any.
#pragma once

#include <string>
#include <vector>

namespace sluice::comm::test {

// The name has these addresses, in this order; the first `unknown_for` lookups return `until_then` instead.
void set_host(const std::string& name, std::vector<std::string> addresses, int unknown_for = 0,
              std::vector<std::string> until_then = {});

// Number of lookups since set_host().
[[nodiscard]] int questions_about(const std::string& name);

}  // namespace sluice::comm::test
