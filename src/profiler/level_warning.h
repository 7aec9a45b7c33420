// level_warning: warns that a profile.level is unavailable. instead: what is used, for example "clocks". Threads: any.
#pragma once

#include <string>

namespace sluice::profiler {

void warn_of_level(const std::string& level, const std::string& why, const std::string& instead);

}  // namespace sluice::profiler
