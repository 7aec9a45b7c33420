#include "measure/measure_layers.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "core/check.h"
#include "core/clock.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/log.h"
#include "core/progress_line.h"
#include "core/text.h"
#include "measure/layer_bench.h"
#include "measure/layer_bytes.h"
#include "measure/layer_timer.h"
#include "measure/time_sizes.h"
#include "optim/optimizer.h"
#include "pipeline/failure.h"
#include "pipeline/state_memory.h"
#include "profiler/level_warning.h"

namespace sluice::measure {
namespace {

using profiler::LayerTimes;
using profiler::MeasuredLayer;

using Part = LayerBench::Part;

// Enough samples to run the kernels of larger batches.
constexpr std::int64_t kFewSamples = 16;

std::uint64_t bytes_of(const nn::Tensors& border) {
  std::uint64_t sum = 0;
  for (const at::Tensor& tensor : border) sum += tensor.defined() ? tensor.nbytes() : 0;
  return sum;
}

std::vector<MeasuredLayer> describe(LayerBench& bench, const Workload& workload, std::int64_t micro_batch) {
  const int optimizer_states = optim::count_states(workload.optimizer);
  std::vector<MeasuredLayer> measured(bench.layers().size());
  bench.run(micro_batch, /*defers_weights=*/true, [&](Part part, std::size_t i, const std::function<void()>& work) {
    work();
    MeasuredLayer& layer = measured[i];
    if (part == Part::kWeightGradient) layer.defers_weights = true;
    if (part != Part::kForward) return;
    const pipeline::LayerState state = pipeline::layer_state(*bench.layers()[i], optimizer_states);
    layer.name = state.name;
    layer.cost.input_bytes = bytes_of(bench.running(i).inputs) / static_cast<std::uint64_t>(micro_batch);
    layer.cost.output_bytes = bytes_of(bench.running(i).outputs) / static_cast<std::uint64_t>(micro_batch);
    layer.cost.parameter_bytes = state.parameter_bytes;
    for (const nn::Buffer* buffer : bench.layers()[i]->buffers()) layer.cost.buffer_bytes += buffer->value.nbytes();
    layer.cost.gradient_bytes = state.gradient_bytes;
    layer.cost.optimizer_bytes = state.optimizer_bytes;
  });
  return measured;
}

void add_bytes(LayerBench& bench, const Workload& workload, const std::vector<std::int64_t>& sizes,
               std::int64_t micro_batch, std::vector<MeasuredLayer>& measured) {
  auto bytes = measure_bytes(bench, workload, sizes, micro_batch);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    measured[i].bytes = std::move(bytes[i]);
    profiler::set_bytes(measured[i].cost, profiler::bytes_of(measured[i].bytes, micro_batch));
  }
}

std::vector<std::int64_t> sizes_for_bytes(std::vector<std::int64_t> sizes, std::int64_t most) {
  while (sizes.back() < most) sizes.push_back(std::min(2 * sizes.back(), most));
  return sizes;
}

std::vector<std::int64_t> warm_up(LayerTimer& timer, const LayerMeasurement& what) {
  std::vector<std::int64_t> fitting;
  for (const std::int64_t size : what.sizes) {
    try {
      timer.warm_up(size);
      fitting.push_back(size);
    } catch (...) {
      const Error error = pipeline::describe_failure(std::current_exception(), concat("a micro-batch of ", size));
      if (error.exit_code() != ExitCode::kOutOfMemory || size <= what.needed_size) throw;
      log_warning("not measuring sizes from ", size, " on: ", error.what());
      break;
    }
  }
  return fitting;
}

void measure_times(LayerTimer& timer, const std::vector<std::int64_t>& sizes, const LayerMeasurement& what,
                   Nanoseconds begin) {
  for (int round = 0; round < what.most_rounds; ++round) {
    if (round >= what.least_rounds && to_s(now_ns() - begin) > what.budget_s) break;
    // Alternate the direction, so that drift of the machine does not favour one end.
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t position = round % 2 == 0 ? i : sizes.size() - 1 - i;
      timer.pass(sizes[position]);
    }
  }
}

std::size_t passes_before_times(const Workload& workload, std::size_t sizes) {
  return 1 + (sizes + 1) * static_cast<std::size_t>(passes_for_bytes(workload.device));
}

void show_passes(LayerBench& bench, ProgressLine& progress, std::size_t most) {
  bench.watch([&bench, &progress, most, pass = 0](Part part, std::size_t layer) mutable {
    if (part == Part::kForward && layer == 0) ++pass;
    const std::size_t layers = bench.layers().size();
    progress.show([&] {
      const bool goes_back = part != Part::kForward;
      return concat("measuring the layers: pass ", pass, " of at most ", most,
                    goes_back ? ", back at layer " : ", at layer ", layer + 1, " of ", layers);
    });
  });
}

// seconds_per_sample: of a pass through all layers.
LayerMeasurement within_budget(LayerMeasurement what, double seconds_per_sample) {
  const std::int64_t size = affordable_size(what.needed_size, seconds_per_sample, what.budget_s);
  if (size == what.needed_size) return what;
  log_info("measuring the layers with ", counted(size, "sample"), ": a pass of ", what.needed_size,
           " would take about ", human_duration(seconds_per_sample * static_cast<double>(what.needed_size)),
           ", too long for the share of layers in pipeline.planning_budget_s");
  what.sizes = {size};
  what.needed_size = size;
  return what;
}

void leave_out_slow(LayerMeasurement& what, double seconds_per_sample) {
  if (what.budget_s <= 0) return;
  const std::int64_t smallest = what.sizes.front();
  std::erase_if(what.sizes, [&](std::int64_t size) {
    const double seconds = seconds_per_sample * static_cast<double>(size) * what.least_rounds;
    return size > std::max(what.needed_size, smallest) && seconds > what.budget_s;
  });
}

// Seconds of a pass per sample. A quick pass is timed again with more samples, so that fixed costs matter less.
double time_a_sample(LayerBench& bench, const Workload& workload, const LayerMeasurement& what, double first_s) {
  constexpr double kQuickShare = 0.02;
  const std::int64_t few = std::min(what.needed_size, kFewSamples);
  if (few == 1 || static_cast<double>(few) * first_s > kQuickShare * what.limit_s) return first_s;
  const Nanoseconds begin = now_ns();
  (void)describe(bench, workload, few);
  return to_s(now_ns() - begin) / static_cast<double>(few);
}

std::vector<std::int64_t> keep_to_limit(const LayerTimer& timer, const Workload& workload, double seconds_per_sample,
                                        double left_s, LayerMeasurement& what) {
  constexpr double kShare = 0.4;  // of the remaining time, for times and bytes each
  constexpr int kRound = 2, kFirstUses = 5;
  const int passes = timer.warm_up_passes() + kRound + kFirstUses;
  const std::size_t asked = what.sizes.size();
  what.sizes = sizes_within(what.sizes, seconds_per_sample, passes, kShare * left_s);
  what.needed_size = std::min(what.needed_size, what.sizes.back());
  what.least_rounds = 1;
  if (what.sizes.size() < asked) {
    log_info("measuring ", what.sizes.size(), " of ", asked, " sizes, up to ", counted(what.sizes.back(), "sample"),
             ", to stay within the time limit");
  }
  return sizes_within(sizes_for_bytes(what.sizes, what.most_samples), seconds_per_sample,
                      passes_for_bytes(workload.device), kShare * left_s);
}

// Returns the sizes whose bytes are measured. few: samples of the pass that described the layers since `begin`.
std::vector<std::int64_t> settle(LayerBench& bench, const LayerTimer& timer, const Workload& workload, std::int64_t few,
                                 Nanoseconds begin, LayerMeasurement& what) {
  const double seconds_per_sample = to_s(now_ns() - begin) / static_cast<double>(few);
  if (what.fits_budget) {
    what = within_budget(std::move(what), seconds_per_sample);
    return {few};
  }
  leave_out_slow(what, seconds_per_sample);
  if (what.limit_s <= 0) return sizes_for_bytes(what.sizes, what.most_samples);
  const double of_sample = time_a_sample(bench, workload, what, seconds_per_sample);
  return keep_to_limit(timer, workload, of_sample, what.limit_s - to_s(now_ns() - begin), what);
}

std::unique_ptr<cupti::Session> start_session(const Workload& workload, const LayerMeasurement& what) {
  if (!what.with_kernels) return nullptr;
  std::string why = "they are measured on a CPU device";
  auto session = workload.device.kind == device::DeviceKind::kCuda ? cupti::Session::start({}, why) : nullptr;
  if (!session) profiler::warn_of_level("cupti", concat("for the layers: ", why), "CUDA events and clocks");
  return session;
}

std::unique_ptr<LayerTimer> make_timer(LayerBench& bench, const Workload& workload, const LayerMeasurement& what) {
  auto session = start_session(workload, what);
  if (workload.device.kind == device::DeviceKind::kCuda) return make_repeat_timer(bench, std::move(session));
  return make_clock_timer(bench, clock_of(workload));
}

std::vector<MeasuredLayer> measure_on_this_thread(const Workload& workload, LayerMeasurement what) {
  LayerBench bench(workload);
  ProgressLine progress;
  const std::size_t before =
      what.with_memory ? passes_before_times(workload, sizes_for_bytes(what.sizes, what.most_samples).size()) : 1;
  const auto timer = make_timer(bench, workload, what);
  show_passes(bench, progress,
              before + what.sizes.size() * static_cast<std::size_t>(timer->warm_up_passes() + 2 * what.most_rounds));
  const Nanoseconds begin = now_ns();
  bench.use_longest(true);
  const std::int64_t few = what.limit_s > 0 ? 1 : std::min(what.needed_size, kFewSamples);
  std::vector<MeasuredLayer> measured = describe(bench, workload, few);
  std::vector<std::int64_t> sizes_of_bytes = settle(bench, *timer, workload, few, begin, what);
  const std::vector<std::int64_t> sizes = warm_up(*timer, what);
  if (what.with_memory) {
    if (sizes.size() < what.sizes.size()) sizes_of_bytes = sizes_for_bytes(sizes, what.most_samples);
    const std::int64_t size = std::min(what.fits_budget ? few : what.needed_size, sizes_of_bytes.back());
    add_bytes(bench, workload, sizes_of_bytes, size, measured);
  }
  bench.use_longest(false);
  if (what.limit_s > 0) what.budget_s = std::min(what.budget_s, what.limit_s - to_s(now_ns() - begin));
  measure_times(*timer, sizes, what, what.fits_budget ? begin : now_ns());
  for (const std::int64_t size : sizes) {
    const std::vector<LayerTimes> times = timer->times(size);
    for (std::size_t i = 0; i < measured.size(); ++i) measured[i].times.push_back(times[i]);
  }
  const std::vector<FirstUse> first = first_uses(*timer, bench, sizes, what.needed_size);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    profiler::set_costs(measured[i]);
    measured[i].cost.first_forward_s = first[i].forward_s;
    measured[i].cost.first_backward_s = first[i].backward_s;
  }
  return measured;
}

// Runs in its own thread, so that the caller's thread count is unchanged.
void measure_apart(const Workload& workload, const std::function<void()>& measure) {
  if (const std::exception_ptr failure = run_as_worker(workload.threads, measure))
    throw pipeline::describe_failure(failure, "measuring the layers");
}

}  // namespace

std::vector<MeasuredLayer> measure_layers(const Workload& workload, const LayerMeasurement& what) {
  check(!what.sizes.empty() && std::ranges::is_sorted(what.sizes) && what.sizes.front() >= 1,
        "ascending sizes of at least one sample");
  check(!what.fits_budget || what.sizes.size() == 1, "a single size if it is fitted into a budget");
  std::vector<MeasuredLayer> measured;
  measure_apart(workload, [&] { measured = measure_on_this_thread(workload, what); });
  return measured;
}

std::vector<LayerCost> measure_layer_bytes(const Workload& workload, std::int64_t micro_batch) {
  std::vector<LayerCost> costs;
  measure_apart(workload, [&] {
    LayerBench bench(workload);
    bench.use_longest(true);
    ProgressLine progress;
    show_passes(bench, progress, passes_before_times(workload, 1));
    std::vector<MeasuredLayer> measured = describe(bench, workload, micro_batch);
    add_bytes(bench, workload, {micro_batch}, micro_batch, measured);
    for (const MeasuredLayer& layer : measured) costs.push_back(layer.cost);
  });
  return costs;
}

std::vector<std::int64_t> sizes_within(std::vector<std::int64_t> sizes, double seconds_per_sample, int passes,
                                       double limit_s) {
  const auto seconds = [&] {
    return seconds_per_sample * passes *
           static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  };
  while (sizes.size() > 2 && seconds() > limit_s) sizes.pop_back();
  return sizes;
}

std::int64_t affordable_size(std::int64_t size, double seconds_per_sample, double budget_s) {
  while (size > kFewSamples && 2 * seconds_per_sample * static_cast<double>(size) > budget_s)
    size = std::max(divided_up(size, 2), kFewSamples);
  return size;
}

std::vector<std::int64_t> sizes_to_profile(std::int64_t micro_batch, std::int64_t most) {
  constexpr std::size_t kFewest = 4;
  constexpr int kDoubles = 4;
  constexpr std::int64_t kRange = 16;
  std::set<std::int64_t> sizes{micro_batch};
  std::int64_t size = 1;
  while (size < micro_batch / kRange) size *= 2;
  for (; size < micro_batch || sizes.size() < kFewest; size *= 2) sizes.insert(size);
  for (int i = 1; i <= kDoubles && micro_batch << i <= most; ++i) sizes.insert(micro_batch << i);
  return {sizes.begin(), sizes.end()};
}

}  // namespace sluice::measure
