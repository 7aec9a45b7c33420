// fingerprint_of: the fingerprint (profiler/fingerprint.h) of this machine, its software and a configured model.
#pragma once

#include <string>

#include "measure/workload.h"
#include "profiler/fingerprint.h"

namespace sluice::measure {

// Digest of a model.file, which replaces the path in a fingerprint.
[[nodiscard]] std::string digest_of_model(const std::string& file);

[[nodiscard]] profiler::Fingerprint fingerprint_of(const Workload& workload, const std::string& version);

}  // namespace sluice::measure
