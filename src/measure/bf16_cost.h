// bf16_cost: measures whether bfloat16 is fast on this CPU. Without AVX512-BF16 or AMX a product takes ten times as
// long as in float32.
#pragma once

namespace sluice::measure {

// Time of a matrix product in bfloat16 divided by its time in float32, on this thread: about 0.5 with the instructions.
// Takes some milliseconds.
[[nodiscard]] double bf16_slowdown();

}  // namespace sluice::measure
