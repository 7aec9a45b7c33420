// decode: converts a block of CUPTI's packed records to plain values. Internal; calls CUPTI without holding a lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/cupti/api.h"
#include "profiler/cupti/records.h"
#include "profiler/names.h"

namespace sluice::cupti {

using profiler::Names;

// Decodes the first `valid` bytes; adds `offset` to every known time. Names are copied, because CUPTI owns them.
[[nodiscard]] Records decode_block(const Api& api, std::uint8_t* block, std::size_t valid, Nanoseconds offset,
                                   Names& names);

}  // namespace sluice::cupti
