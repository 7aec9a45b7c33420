// names: host names of a test, which getaddrinfo() of its program knows beside those of the system.
// Threads: any.
#pragma once

#include <string>
#include <vector>

namespace sluice::comm::test {

// The name has these addresses, in this order, but is not known to the first `unknown_for` questions.
void set_host(const std::string& name, std::vector<std::string> addresses, int unknown_for = 0);

}  // namespace sluice::comm::test
