// check: asserts an invariant of Sluice itself, in every build; throws BugError with the file and line. `expected`
// completes "expected: ". `ok` must have no side effects. For failures from outside, throw an Error (core/error.h).
#pragma once

#include <source_location>
#include <string_view>

namespace sluice {

void check(bool ok, std::string_view expected, std::source_location at = std::source_location::current());

}  // namespace sluice
