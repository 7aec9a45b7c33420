// failure: turns whatever a stage's thread threw into one Error that says where it happened.
#pragma once

#include <exception>
#include <string>

#include "core/error.h"

namespace sluice::pipeline {

// Must be called inside a catch block, or with a caught exception. LibTorch's own errors keep their first line; running
// out of memory becomes OutOfMemoryError's exit code.
[[nodiscard]] Error describe_failure(const std::exception_ptr& failure, const std::string& where);

}  // namespace sluice::pipeline
