#include "core/process_age.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace sluice {

double process_age_s() {
  constexpr int kFieldsBefore = 19;  // fields between the name in parentheses and starttime (proc(5))
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  std::int64_t ticks = 0;
  timespec now{};
  if (!(fields >> ticks) || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double since_boot = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  return std::max(0.0, since_boot - static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

}  // namespace sluice
