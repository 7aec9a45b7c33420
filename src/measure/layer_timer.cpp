#include "measure/layer_timer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "core/thread_time.h"
#include "profiler/cupti/attribute.h"
#include "profiler/cupti/sequence_kernels.h"
#include "profiler/gpu_repeat_timing.h"

namespace sluice::measure {
namespace {

using profiler::CallTime;
using profiler::LayerTimes;
using Part = LayerBench::Part;

class ClockTimer final : public LayerTimer {
 public:
  ClockTimer(LayerBench& bench, std::function<Nanoseconds()> clock) : bench_(bench), clock_(std::move(clock)) {}

  void warm_up(std::int64_t samples) override { (void)times_of_pass(samples, /*defers_weights=*/true); }
  [[nodiscard]] int warm_up_passes() const override { return 1; }
  void pass(std::int64_t samples) override {
    std::vector<LayerTimes> times = times_of_pass(samples, /*defers_weights=*/true);
    const std::vector<LayerTimes> whole = times_of_pass(samples, /*defers_weights=*/false);
    for (std::size_t i = 0; i < times.size(); ++i) {
      times[i].forward_s = std::min(times[i].forward_s, whole[i].forward_s);
      times[i].backward_s = whole[i].input_gradient_s;
    }
    keep_shortest(best_[samples], times);
  }
  [[nodiscard]] std::vector<FirstUse> first_use(std::int64_t samples) override {
    constexpr int kRepeats = 5;
    std::vector<LayerTimes> first;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      bench_.forget_transformed();
      std::vector<LayerTimes> times = times_of_pass(samples, /*defers_weights=*/false);
      for (LayerTimes& layer : times) layer.backward_s = layer.input_gradient_s;
      keep_shortest(first, times);
    }
    std::vector<FirstUse> more(first.size());
    for (std::size_t i = 0; i < more.size(); ++i) {
      if (bench_.transformed_bytes(i) == 0) continue;
      more[i].forward_s = std::max(0.0, first[i].forward_s - best_.at(samples)[i].forward_s);
      more[i].backward_s = std::max(0.0, first[i].backward_s - best_.at(samples)[i].backward_s);
    }
    return more;
  }
  [[nodiscard]] std::vector<LayerTimes> times(std::int64_t samples) override { return best_.at(samples); }

 private:
  std::vector<LayerTimes> times_of_pass(std::int64_t samples, bool defers_weights) {
    std::vector<LayerTimes> layers(bench_.layers().size(), LayerTimes{.samples = samples});
    bench_.run(samples, defers_weights, [&](Part part, std::size_t i, const std::function<void()>& work) {
      const Nanoseconds begin = clock_();
      work();
      bench_.synchronize();
      const double seconds = to_s(clock_() - begin);
      switch (part) {
        case Part::kForward:
        case Part::kLoss: layers[i].forward_s += seconds; break;
        case Part::kLossBackward:
        case Part::kBackward: layers[i].input_gradient_s += seconds; break;
        case Part::kWeightGradient: layers[i].weight_gradient_s = seconds; break;
      }
    });
    return layers;
  }

  static void keep_shortest(std::vector<LayerTimes>& best, const std::vector<LayerTimes>& times) {
    if (best.empty()) best = times;
    for (std::size_t i = 0; i < best.size(); ++i) {
      best[i].forward_s = std::min(best[i].forward_s, times[i].forward_s);
      best[i].input_gradient_s = std::min(best[i].input_gradient_s, times[i].input_gradient_s);
      best[i].weight_gradient_s = std::min(best[i].weight_gradient_s, times[i].weight_gradient_s);
      best[i].backward_s = std::min(best[i].backward_s, times[i].backward_s);
    }
  }

  LayerBench& bench_;
  std::function<Nanoseconds()> clock_;
  std::map<std::int64_t, std::vector<LayerTimes>> best_;
};

class RepeatTimer final : public LayerTimer {
 public:
  RepeatTimer(LayerBench& bench, std::unique_ptr<cupti::Session> session)
      : bench_(bench), session_(std::move(session)) {}

  // The first pass loads, plans and allocates for this size; the second one measures the duration of calls.
  void warm_up(std::int64_t samples) override {
    for (int pass_number = 0; pass_number < warm_up_passes(); ++pass_number) (void)run(samples, /*is_warm=*/false);
    if (session_) (void)session_->collect();  // discarded, because CUPTI instruments kernels on first use
  }
  [[nodiscard]] int warm_up_passes() const override { return 2; }

  void pass(std::int64_t samples) override {
    std::vector<Seen> seen = run(samples, /*is_warm=*/true);
    if (!session_) return;
    const cupti::Records records = session_->collect();
    keep_last_kernels(records);
    std::vector<cupti::SequenceSpan> spans;
    for (const Seen& sequence : seen) spans.push_back(sequence.span);
    const auto kernels = cupti::sequence_kernels(records, spans);
    for (std::size_t i = 0; i < seen.size(); ++i) seen[i].time.kernels = kernels[i];
    last_ = {samples, std::move(seen)};
  }

  [[nodiscard]] std::vector<FirstUse> first_use(std::int64_t) override {
    return std::vector<FirstUse>(bench_.layers().size());
  }

  [[nodiscard]] std::vector<LayerTimes> times(std::int64_t samples) override {
    if (session_ && !last_.seen.empty()) keep_last_kernels(session_->collect());
    std::vector<LayerTimes> layers;
    for (const PartTimes& parts : best_.at(samples)) {
      const auto sum = [&parts](std::initializer_list<Part> some) {
        std::vector<CallTime> calls;
        for (const Part part : some) {
          if (const auto& call = parts[static_cast<std::size_t>(part)]) calls.push_back(*call);
        }
        return profiler::sum_of(calls);
      };
      layers.push_back(profiler::layer_times(samples, sum({Part::kForward, Part::kLoss}),
                                             sum({Part::kLossBackward, Part::kBackward}),
                                             sum({Part::kWeightGradient})));
    }
    return layers;
  }

 private:
  using PartTimes = std::array<std::optional<CallTime>, 5>;
  struct Seen {
    Part part;
    std::size_t layer;
    profiler::SequenceTime time;
    cupti::SequenceSpan span;
  };

  struct Pass {
    std::int64_t samples = 0;
    std::vector<Seen> seen;
  };

  // later: records collected after the last pass. If some belong to that pass, its sums are incomplete and are dropped.
  void keep_last_kernels(const cupti::Records& later) {
    const Pass pass = std::exchange(last_, {});
    if (pass.seen.empty() || cupti::count_late(later, pass.seen.back().span.idle) > 0) return;
    for (const Seen& seen : pass.seen) keep(pass.samples, seen, seen.time);
  }

  std::vector<Seen> run(std::int64_t samples, bool is_warm) {
    std::vector<PartTimes>& best = best_[samples];
    best.resize(bench_.layers().size());
    std::vector<Seen> seen;
    bench_.run_repeatably(samples, [&](Part part, std::size_t layer, const std::function<void()>& work) {
      const std::optional<CallTime>& known = best[layer][static_cast<std::size_t>(part)];
      const bool is_known = is_warm && known.has_value();
      seen.push_back(run_sequence(part, layer, is_known ? profiler::sequence_for(*known) : profiler::Sequence{}, work));
      keep(samples, seen.back(), seen.back().time);
    });
    return seen;
  }

  Seen run_sequence(Part part, std::size_t layer, const profiler::Sequence& sequence,
                    const std::function<void()>& work) const {
    const device::Stream& stream = bench_.stream();
    stream.delay(sequence.delay);
    const device::Moment first = stream.moment();
    const Nanoseconds begin = now_ns();
    for (int call = 0; call < sequence.calls; ++call) work();
    const Nanoseconds end = now_ns();
    const device::Moment last = stream.moment();
    stream.synchronize();
    const Nanoseconds idle = now_ns();
    const Nanoseconds events = last.is_known() ? last.known_time() - first.known_time() : last.time(first, 0);
    return {part,
            layer,
            {.calls = sequence.calls, .events = events, .host = end - begin},
            {.begin = begin, .end = end, .idle = idle}};
  }

  void keep(std::int64_t samples, const Seen& seen, const profiler::SequenceTime& time) {
    std::optional<CallTime>& best = best_.at(samples)[seen.layer][static_cast<std::size_t>(seen.part)];
    const CallTime call = profiler::call_time(time);
    if (best)
      profiler::keep_shortest(*best, call);
    else
      best = call;
  }

  LayerBench& bench_;
  std::unique_ptr<cupti::Session> session_;  // null: events only
  std::map<std::int64_t, std::vector<PartTimes>> best_;
  Pass last_;  // pass whose kernels are still to be kept; empty: none
};

}  // namespace

std::unique_ptr<LayerTimer> make_clock_timer(LayerBench& bench, std::function<Nanoseconds()> clock) {
  return std::make_unique<ClockTimer>(bench, std::move(clock));
}

std::unique_ptr<LayerTimer> make_repeat_timer(LayerBench& bench, std::unique_ptr<cupti::Session> session) {
  return std::make_unique<RepeatTimer>(bench, std::move(session));
}

std::function<Nanoseconds()> clock_of(const Workload& workload) {
  return counts_processor_time(workload) ? thread_time_ns : now_ns;
}

bool counts_processor_time(const Workload& workload) {
  return workload.device.kind == device::DeviceKind::kCpu && workload.threads == 1;
}

std::vector<FirstUse> first_uses(LayerTimer& timer, const LayerBench& bench, std::vector<std::int64_t> sizes,
                                 std::int64_t needed) {
  const std::size_t layers = bench.layers().size();
  std::vector<bool> is_open(layers);
  for (std::size_t i = 0; i < layers; ++i) is_open[i] = bench.transformed_bytes(i) > 0;
  const auto above = std::ranges::upper_bound(sizes, needed);
  const auto own = above == sizes.begin() ? sizes.begin() : above - 1;
  std::rotate(sizes.begin(), own, own + 1);
  std::vector<FirstUse> first(layers);
  for (const std::int64_t size : sizes) {
    if (std::ranges::none_of(is_open, std::identity())) break;
    const std::vector<FirstUse> here = timer.first_use(size);
    for (std::size_t i = 0; i < layers; ++i)
      if (is_open[i] && bench.transformed_bytes(i) > 0) first[i] = here[i], is_open[i] = false;
  }
  return first;
}

}  // namespace sluice::measure
