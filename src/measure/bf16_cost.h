// bf16_cost: whether bfloat16 is fast on this CPU. One without instructions for it (AVX512-BF16, AMX) takes ten times
// as long for a product as in float32. Measured, so that it holds for whatever LibTorch's libraries do there.
#pragma once

namespace sluice::measure {

// How many times as long the product of two matrices takes in bfloat16 as in float32, on this thread: about 0.5 with
// the instructions. Takes some milliseconds.
[[nodiscard]] double bf16_slowdown();

}  // namespace sluice::measure
