#include "core/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "core/concat.h"

namespace sluice {
namespace {

// The number after `word` in lines such as "MemAvailable:   123 kB"; with an empty `word`, the file's first number.
std::optional<std::uint64_t> number_in(const char* file, std::string_view word) {
  std::ifstream in(file);
  std::string read;
  while (!word.empty() && in >> read && read != word) {
  }
  std::uint64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// Free memory below the container's limit (control groups, version 2), with cached pages, which the kernel drops.
std::optional<std::uint64_t> left_of_limit() {
  const auto limit = number_in("/sys/fs/cgroup/memory.max", "");
  const auto taken = number_in("/sys/fs/cgroup/memory.current", "");
  if (!limit || !taken) return std::nullopt;
  const std::uint64_t files = number_in("/sys/fs/cgroup/memory.stat", "inactive_file").value_or(0);
  const std::uint64_t kept = *taken - std::min(*taken, files);
  return *limit - std::min(*limit, kept);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string process_name() { return concat(host_name(), ", process ", ::getpid()); }

std::string boot_id() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

std::uint64_t available_memory() {
  constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t of_machine = 1024 * number_in("/proc/meminfo", "MemAvailable:").value_or(0);
  return std::min(of_machine, left_of_limit().value_or(kNoLimit));
}

std::uint64_t peak_process_memory() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace sluice
