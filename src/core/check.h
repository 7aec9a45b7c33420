// check: our own promises, always compiled in. Throws BugError (exit code 70) naming the file and line.
// Not for what users or the outside world can cause: those are Errors (core/error.h). `ok` must have no side effects.
#pragma once

#include <source_location>
#include <string_view>

namespace sluice {

void check(bool ok, std::string_view what, std::source_location at = std::source_location::current());

}  // namespace sluice
