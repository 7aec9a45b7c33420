// level_warning: what a run says where profile.level asks for what cannot be had. Threads: any.
#pragma once

#include <string>

namespace sluice::profiler {

// A warning: the level is unavailable, why, and what is used instead: "clocks".
void warn_of_level(const std::string& level, const std::string& why, const std::string& instead);

}  // namespace sluice::profiler
