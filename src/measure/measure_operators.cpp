#include "measure/measure_operators.h"

#include <unistd.h>
#include <algorithm>
#include <functional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/clock.h"
#include "core/host.h"
#include "core/log.h"
#include "core/thread_time.h"
#include "measure/layer_bench.h"
#include "measure/time_sizes.h"
#include "nn/gemm.h"
#include "pipeline/failure.h"
#include "profiler/operators/operator_watch.h"

namespace sluice::measure {
namespace {

using operators::OperatorWatch;
using profiler::LayerOperators;
using profiler::OperatorProfile;
using profiler::Pass;
using profiler::PassOperators;

constexpr int kFewestRounds = 5;
constexpr int kMostRounds = 40;
constexpr double kRoundsSeconds = 4;
constexpr double kPeakSeconds = 0.5;  // for each of four kinds of work

// CPU time if this thread does all the work, so that other programs on the core do not count.
OperatorWatch::Clock clock_for(const Workload& workload) { return workload.threads == 1 ? &thread_time_ns : &now_ns; }

Pass pass_of(LayerBench::Part part) {
  return part == LayerBench::Part::kForward || part == LayerBench::Part::kLoss ? Pass::kForward : Pass::kBackward;
}

PassOperators& of_pass(LayerOperators& layer, Pass pass) {
  return pass == Pass::kForward ? layer.forward : layer.backward;
}

void run_once(LayerBench& bench, OperatorWatch::Clock clock, OperatorWatch* watch, OperatorProfile& profile) {
  const auto around = [&](LayerBench::Part part, std::size_t i, const std::function<void()>& work) {
    const Pass pass = pass_of(part);
    PassOperators& sum = of_pass(profile.layers[i], pass);
    if (watch == nullptr) {
      const Nanoseconds begin = clock();
      work();
      sum.seconds += to_s(clock() - begin);
      return;
    }
    watch->enter(static_cast<int>(i), pass);
    static_cast<void>(watch->take_cost());
    const Nanoseconds begin = clock();
    work();
    sum.watched_s += to_s(clock() - begin - watch->take_cost());
    watch->leave();
  };
  bench.run(profile.micro_batch, /*defers_weights=*/false, around);
}

void run_rounds(LayerBench& bench, OperatorWatch::Clock clock, OperatorProfile& profile) {
  OperatorProfile not_kept = profile;
  run_once(bench, clock, nullptr, not_kept);
  profiler::OperatorSums all;
  for (const Nanoseconds begin = now_ns(); profile.passes < kMostRounds; ++profile.passes) {
    if (profile.passes >= kFewestRounds && to_s(now_ns() - begin) > kRoundsSeconds) break;
    run_once(bench, clock, nullptr, profile);
    OperatorWatch watch(OperatorWatch::Threads::kThisOne, clock);
    run_once(bench, clock, &watch, profile);
    for (const auto& [key, sum] : watch.take()) all[key] += sum;
  }
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      PassOperators& own = of_pass(profile.layers[i], pass);
      own.seconds /= profile.passes;
      own.watched_s /= profile.passes;
      own.operators = profiler::means_of(all, static_cast<int>(i), pass, profile.passes);
    }
  }
}

double best_rate(OperatorWatch::Clock clock, double amount, const std::function<void()>& work) {
  constexpr int kFewest = 3;
  work();
  double least = 0;
  const Nanoseconds start = now_ns();
  for (int i = 0; i < kFewest || to_s(now_ns() - start) < kPeakSeconds; ++i) {
    const Nanoseconds begin = clock();
    work();
    const double seconds = to_s(clock() - begin);
    if (i == 0 || seconds < least) least = seconds;
  }
  return least > 0 ? amount / least : 0;
}

double product_rate(OperatorWatch::Clock clock, at::ScalarType dtype) {
  constexpr std::int64_t kSize = 1024;
  const at::Tensor a = at::randn({kSize, kSize}, dtype), b = at::randn({kSize, kSize}, dtype);
  at::Tensor out;
  const double flops = 2.0 * kSize * kSize * kSize;
  return std::max(best_rate(clock, flops, [&] { out = at::mm(a, b); }),
                  // uses another library
                  best_rate(clock, flops, [&] { out = nn::linear_forward(a, b, std::nullopt); }));
}

std::int64_t room_for(const Workload& workload) {
  const auto available = static_cast<std::int64_t>(available_memory());
  const auto limit = static_cast<std::int64_t>(workload.memory_limit);
  return limit > 0 ? std::min(available, limit) : available;
}

// Bytes of one tensor: four times the last-level cache. The three tensors use at most a quarter of the memory.
std::int64_t bytes_of_tensor(const Workload& workload, std::int64_t cache) {
  constexpr std::int64_t kLeast = std::int64_t{64} << 20;
  return std::min(std::max(4 * cache, kLeast), room_for(workload) / 12);
}

double memory_rate(OperatorWatch::Clock clock, at::ScalarType dtype, std::int64_t bytes) {
  const std::int64_t size = std::max<std::int64_t>(bytes / static_cast<std::int64_t>(at::elementSize(dtype)), 1);
  const at::Tensor a = at::ones({size}, dtype), b = at::ones({size}, dtype);
  at::Tensor out = at::zeros({size}, dtype);
  const auto one = static_cast<double>(out.nbytes());
  return std::max(best_rate(clock, 3 * one, [&] { at::add_out(out, a, b, /*alpha=*/3); }),
                  best_rate(clock, 2 * one, [&] { out.copy_(a); }));
}

profiler::MachinePeaks peaks_on_this_thread(const Workload& workload) {
  const at::NoGradGuard no_grad;
  const OperatorWatch::Clock clock = clock_for(workload);
  const std::int64_t cache = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0L);  // 0: unknown
  const std::int64_t bytes = bytes_of_tensor(workload, cache);
  const at::ScalarType type = workload.model.in_bf16 ? at::kBFloat16 : workload.model.dtype;
  return {.flops_per_s = product_rate(clock, type),
          .bytes_per_s = memory_rate(clock, type, bytes),
          .is_of_cache = 3 * bytes <= cache};
}

}  // namespace

OperatorProfile measure_operators(const Workload& workload, std::int64_t micro_batch) {
  check(workload.device.kind == device::DeviceKind::kCpu, "a CPU device");
  OperatorProfile profile{.micro_batch = micro_batch};
  const auto failure = run_as_worker(workload.threads, [&] {
    profile.peaks = peaks_on_this_thread(workload);
    LayerBench bench(workload);
    for (const auto& layer : bench.layers()) profile.layers.push_back({.layer = layer->name()});
    run_rounds(bench, clock_for(workload), profile);
  });
  if (failure) throw pipeline::describe_failure(failure, "measuring the operators");
  return profile;
}

}  // namespace sluice::measure
