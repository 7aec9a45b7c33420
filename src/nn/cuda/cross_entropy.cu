#include "nn/cuda/grid.cuh"
#include "nn/cuda/row_kernels.h"

namespace sluice::nn::gpu {
namespace {

template <typename T, int kRun, int kWarps>
__global__ void cross_entropy_kernel(CrossEntropyArguments arguments) {
  const std::int64_t row = row_of_group();
  if (row < arguments.shape.rows) cross_entropy_row<T, kRun>(LaneGroup<kWarps>(), arguments, row);
}

template <typename T, int kRun, int kWarps>
__global__ void cross_entropy_gradient_kernel(CrossEntropyBackwardArguments arguments) {
  const std::int64_t row = row_of_group();
  if (row < arguments.shape.rows) cross_entropy_gradient_row<T, kRun>(LaneGroup<kWarps>(), arguments, row);
}

template <typename T, int kRun, int kWarps>
__global__ void count_hits_kernel(CountHitsArguments arguments) {
  const std::int64_t row = row_of_group();
  if (row >= arguments.shape.rows) return;
  const LaneGroup<kWarps> group;
  const float ahead = rank_of_target<T, kRun>(group, arguments, row);
  if (group.lane().index != 0) return;
  if (ahead < 1) atomicAdd(arguments.hits, 1ULL);
  if (ahead < static_cast<float>(kMostHits)) atomicAdd(arguments.hits + 1, 1ULL);
}

// Calls body(number, run, warps) with what suits rows of logits.
template <typename Body>
void with_rows(Number type, Matrix shape, bool is_aligned, const Body& body) {
  with_run(shape.columns, is_aligned, [&](auto run) {
    with_warps(shape.columns, [&](auto warps) { with_number(type, [&](auto number) { body(number, run, warps); }); });
  });
}

bool is_aligned(const void* memory, Number type) {
  return type == Number::kBf16 ? aligned<Bf16>(memory) : aligned<float>(memory);
}

}  // namespace

void launch_cross_entropy(const CrossEntropyArguments& arguments, Number type, cudaStream_t stream) {
  with_rows(type, arguments.shape, is_aligned(arguments.logits, type), [&](auto number, auto run, auto warps) {
    const RowGrid grid = row_grid<decltype(warps)::value>(arguments.shape.rows);
    start(cross_entropy_kernel<decltype(number), decltype(run)::value, decltype(warps)::value>, grid.blocks,
          grid.threads, stream, arguments);
  });
}

void launch_cross_entropy_backward(const CrossEntropyBackwardArguments& arguments, Number type, cudaStream_t stream) {
  const bool all_aligned = is_aligned(arguments.logits, type) && is_aligned(arguments.grad, type);
  with_rows(type, arguments.shape, all_aligned, [&](auto number, auto run, auto warps) {
    const RowGrid grid = row_grid<decltype(warps)::value>(arguments.shape.rows);
    start(cross_entropy_gradient_kernel<decltype(number), decltype(run)::value, decltype(warps)::value>, grid.blocks,
          grid.threads, stream, arguments);
  });
}

void launch_count_hits(const CountHitsArguments& arguments, Number type, cudaStream_t stream) {
  with_rows(type, arguments.shape, is_aligned(arguments.logits, type), [&](auto number, auto run, auto warps) {
    const RowGrid grid = row_grid<decltype(warps)::value>(arguments.shape.rows);
    start(count_hits_kernel<decltype(number), decltype(run)::value, decltype(warps)::value>, grid.blocks, grid.threads,
          stream, arguments);
  });
}

}  // namespace sluice::nn::gpu
