#include "profiler/level_warning.h"

#include "core/log.h"

namespace sluice::profiler {

void warn_of_level(const std::string& level, const std::string& why, const std::string& instead) {
  log_warning("profile.level = \"", level, "\": unavailable (", why, "); ", instead, " are used");
}

}  // namespace sluice::profiler
