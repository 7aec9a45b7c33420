#include "core/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>

#include "core/concat.h"

namespace sluice {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string process_name() { return concat(host_name(), ", process ", ::getpid()); }

std::uint64_t peak_process_memory() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace sluice
