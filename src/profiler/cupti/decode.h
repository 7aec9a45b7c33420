// decode: a block of CUPTI's packed records as values of our own. Only src/profiler/cupti includes this; it needs
// CUPTI's headers. Threads: any; CUPTI's functions are called without a lock of ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/cupti/api.h"
#include "profiler/cupti/records.h"
#include "profiler/names.h"

namespace sluice::cupti {

using profiler::Names;

// Of the first `valid` bytes. `offset` is added to every time that is known. Names are copied: CUPTI owns its own.
[[nodiscard]] Records decode_block(const Api& api, std::uint8_t* block, std::size_t valid, Nanoseconds offset,
                                   Names& names);

}  // namespace sluice::cupti
