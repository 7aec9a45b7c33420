// process_age: how long this process has run. Threads: any.
#pragma once

namespace sluice {

// Since the process was started, before its libraries were loaded, which takes seconds on a busy machine. To 0.01 s;
// 0: not known.
[[nodiscard]] double process_age_s();

}  // namespace sluice
