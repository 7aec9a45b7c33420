// fingerprint_of: the fingerprint (profiler/fingerprint.h) of this machine, this software and a configured model.
#pragma once

#include <string>

#include "profiler/fingerprint.h"
#include "profiler/measure/workload.h"

namespace sluice::measure {

// version: of Sluice.
[[nodiscard]] profiler::Fingerprint fingerprint_of(const Workload& workload, const std::string& version);

}  // namespace sluice::measure
