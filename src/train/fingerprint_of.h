// fingerprint_of: the fingerprint (profiler/fingerprint.h) of this machine, this software and a configured model.
#pragma once

#include <string>

#include "profiler/fingerprint.h"
#include "train/setup.h"

namespace sluice::train {

// version: of Sluice.
[[nodiscard]] profiler::Fingerprint fingerprint_of(const Setup& setup, const std::string& version);

}  // namespace sluice::train
