// bf16_cost: measures whether bfloat16 is fast on this CPU, that is, has AVX512-BF16 or AMX.
#pragma once

namespace sluice::measure {

// Time of a matrix product in bfloat16 divided by its time in float32: about 0.5 with the instructions, 10 without.
[[nodiscard]] double bf16_slowdown();

}  // namespace sluice::measure
