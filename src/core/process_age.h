// process_age: how long this process has run. Threads: any.
#pragma once

namespace sluice {

// Includes library loading, which takes seconds on a busy machine. Resolution: 0.01 s; 0 if unknown.
[[nodiscard]] double process_age_s();

}  // namespace sluice
