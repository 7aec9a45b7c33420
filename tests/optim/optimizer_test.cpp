#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/concat.h"
#include "engine/reference.h"
#include "optim/lamb.h"
#include "support/operator_calls.h"

namespace sluice::optim {
namespace {

constexpr std::int64_t kElements = 1003;  // no multiple of a vector or a cache line
constexpr int kSteps = 24;

at::Tensor wave(double frequency, at::ScalarType type = at::kDouble) {
  return (at::arange(kElements, at::kDouble) * frequency + 0.3).sin().to(type);
}

at::Tensor gradient_of_step(int step, at::ScalarType type = at::kDouble) { return wave(0.37 * (step + 1), type); }

std::vector<OptimizerOptions> all_kinds() {
  return {{.kind = "sgd"},
          {.kind = "sgd", .weight_decay = 0.1},
          {.kind = "momentum", .momentum = 0.9},
          {.kind = "momentum", .momentum = 0.7, .nesterov = true, .weight_decay = 0.01},
          {.kind = "rmsprop"},
          {.kind = "rmsprop", .weight_decay = 0.1, .rms_alpha = 0.9, .eps = 1e-3},
          {.kind = "adam", .beta1 = 0.8, .beta2 = 0.95},
          {.kind = "adam", .weight_decay = 0.1, .eps = 1e-3},
          {.kind = "adamw", .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99}};
}

std::vector<OptimizerOptions> ours_too() {
  std::vector<OptimizerOptions> kinds = all_kinds();
  kinds.push_back({.kind = "momentum", .momentum = 0.8, .nesterov = true, .nesterov_delay = 3, .weight_decay = 0.1});
  return kinds;
}

std::string describe(const OptimizerOptions& options) {
  return concat(options.kind, options.nesterov ? " nesterov" : "", " weight_decay ", options.weight_decay);
}

TEST(Optimizer, FollowsThePublishedRuleOverManySteps) {
  for (const OptimizerOptions& options : all_kinds()) {
    SCOPED_TRACE(describe(options));
    const at::Tensor values = wave(1.1), gradients = at::zeros_like(values), expected = values.clone();
    Optimizer optimizer(options, values, gradients);
    storage::TensorMap state;
    for (int step = 0; step < kSteps; ++step) {
      const double lr = 0.1 / (step + 1);
      gradients.copy_(gradient_of_step(step));
      optimizer.begin_step();
      optimizer.update(lr, 1.0, {});
      engine::test::reference_update(options, lr, step + 1, expected, gradient_of_step(step), state);
      ASSERT_TRUE(at::allclose(values, expected, 1e-12, 1e-13)) << "step " << step;
    }
    for (const auto& [name, tensor] : optimizer.states())
      EXPECT_TRUE(at::allclose(tensor, state.at(name), 1e-12, 1e-13)) << name;
    EXPECT_EQ(optimizer.states().size(), state.size());
    EXPECT_EQ(optimizer.steps(), kSteps);
  }
}

at::Tensor train_in_parts(const OptimizerOptions& options, int parts, at::ScalarType type) {
  const at::Tensor values = wave(1.1, type), gradients = at::zeros_like(values);
  Optimizer optimizer(options, values, gradients);
  for (int step = 0; step < 5; ++step) {
    gradients.copy_(gradient_of_step(step, type));
    optimizer.begin_step();
    for (int part = 0; part < parts; ++part) optimizer.update(0.05, 3.0, {part, parts});
  }
  return values;
}

struct Parameter {
  std::int64_t numel;
  bool decays;
};

at::Tensor values_of(std::size_t parameter, std::int64_t numel, int step, at::ScalarType type) {
  const double frequency = 0.37 * (static_cast<double>(parameter) + 1) + 0.11 * step;
  return (at::arange(numel, at::kDouble) * frequency + 0.3).sin().to(type);
}

// Trains parameters that lie in one flat buffer, as pipeline/flat_parameters.h has them. Returns [parameter].
std::vector<at::Tensor> train_flat(const OptimizerOptions& options, const std::vector<Parameter>& all,
                                   const std::vector<std::size_t>& chosen, at::ScalarType type) {
  const auto line = static_cast<std::int64_t>(64 / at::elementSize(type));
  std::vector<UpdateRange> ranges;
  std::int64_t end = 0;
  for (const std::size_t p : chosen) {
    ranges.push_back({.begin = end, .end = end + (all[p].numel + line - 1) / line * line, .decays = all[p].decays});
    end = ranges.back().end;
  }
  const at::Tensor values = at::zeros({end}, type), gradients = at::zeros({end}, type);
  const auto part = [&](const at::Tensor& flat, std::size_t i) {
    return flat.narrow(0, ranges[i].begin, all[chosen[i]].numel);
  };
  for (std::size_t i = 0; i < chosen.size(); ++i)
    part(values, i).copy_(values_of(chosen[i], all[chosen[i]].numel, 0, type));
  Optimizer optimizer(options, values, gradients, ranges);
  for (int step = 1; step < 6; ++step) {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      part(gradients, i).copy_(values_of(chosen[i], all[chosen[i]].numel, step, type));
    optimizer.begin_step();
    optimizer.update(0.05, 3.0, {});
  }
  std::vector<at::Tensor> trained;
  for (std::size_t i = 0; i < chosen.size(); ++i) trained.push_back(part(values, i).clone());
  return trained;
}

// The ends of vectors and of threads' parts lie elsewhere in each buffer.
TEST(Optimizer, AParameterHasTheSameBitsWhicheverBufferItLiesIn) {
  const std::vector<Parameter> all{{5, true},       {16, false}, {1003, true}, {33, true},
                                   {70'001, false}, {48, true},  {1, false}};
  std::vector<OptimizerOptions> kinds = ours_too();
  kinds.push_back({.kind = "lamb", .weight_decay = 0.1});
  kinds.push_back({.kind = "adamw", .amsgrad = true, .ema_decay = 0.9});
  const int threads = at::get_num_threads();
  for (const int used : {1, 3}) {
    at::set_num_threads(used);
    for (const OptimizerOptions& options : kinds) {
      for (const auto type : {at::kFloat, at::kDouble}) {
        SCOPED_TRACE(concat(describe(options), ", ", used, " threads"));
        const std::vector<at::Tensor> together = train_flat(options, all, {0, 1, 2, 3, 4, 5, 6}, type);
        const std::vector<at::Tensor> reversed = train_flat(options, all, {6, 5, 4, 3, 2, 1, 0}, type);
        for (std::size_t p = 0; p < all.size(); ++p) {
          EXPECT_TRUE(at::equal(reversed[all.size() - 1 - p], together[p])) << "parameter " << p;
          EXPECT_TRUE(at::equal(train_flat(options, all, {p}, type).front(), together[p]))
              << "parameter " << p << " alone";
        }
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(Optimizer, UpdatesInPartsEqualOneUpdateBitForBit) {
  for (const OptimizerOptions& options : ours_too()) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const at::Tensor whole = train_in_parts(options, 1, type);
      for (const int parts : {2, 3, 7, 40}) {
        EXPECT_TRUE(at::equal(train_in_parts(options, parts, type), whole)) << describe(options) << ", " << parts;
      }
    }
  }
}

TEST(Optimizer, DividesAsTheGradientDividedBeforeBitForBit) {
  for (const OptimizerOptions& options : ours_too()) {
    for (const auto type : {at::kFloat, at::kDouble}) {
      const at::Tensor a = wave(1.1, type), b = a.clone(), gradients = at::zeros_like(a), divided = at::zeros_like(a);
      Optimizer of_sum(options, a, gradients), of_mean(options, b, divided);
      for (int step = 0; step < 5; ++step) {
        const double divisor = step == 0 ? 64 : 0.7 * step;
        gradients.copy_(gradient_of_step(step, type));
        divided.copy_(gradients.div(divisor));
        for (Optimizer* optimizer : {&of_sum, &of_mean}) optimizer->begin_step();
        of_sum.update(0.1, divisor, {});
        of_mean.update(0.1, 1.0, {});
        ASSERT_TRUE(at::equal(a, b)) << describe(options) << ", " << type << ", step " << step;
        ASSERT_TRUE(at::equal(gradients, divided)) << "is divided in place";
      }
    }
  }
}

// Weights and biases alternate, as with train.no_decay.
std::vector<UpdateRange> alternating_ranges() {
  std::vector<UpdateRange> ranges;
  for (std::int64_t begin = 0; begin < kElements; begin += 17)
    ranges.push_back({.begin = begin,
                      .end = std::min(begin + 15, kElements),
                      .decays = begin % 2 == 0,
                      .lr_factor = begin < 500 ? 1.0 : 0.5,
                      .missed = begin > 900 ? 1 : 0});
  return ranges;
}

TEST(Optimizer, UpdatesAllRangesOfTheSameRatesByOneCall) {
  for (const char* kind : {"momentum", "adamw"}) {
    const at::Tensor values = wave(1.1, at::kFloat);
    Optimizer optimizer({.kind = kind, .weight_decay = 0.1}, values, gradient_of_step(0, at::kFloat),
                        alternating_ranges());
    optimizer.begin_step();
    for (int step = 0; step < 2; ++step) {
      optimizer.begin_step();
      const OperatorCalls calls;
      optimizer.update(0.1, 3.0, {});
      constexpr int kRates = 6;  // decays or not, of the first half, the second, and what missed a step
      EXPECT_EQ(calls.of("aten::_fused_sgd_") + calls.of("aten::_fused_adamw_"), kRates);
      EXPECT_EQ(calls.of("aten::div_"), 0) << "the fused kernel divides";
    }
  }
}

TEST(Optimizer, UpdatesEachRangeAtItsOwnRates) {
  for (OptimizerOptions options : ours_too()) {
    options.weight_decay = 0.1;
    options.ema_decay = 0.9;
    SCOPED_TRACE(describe(options));
    const at::Tensor start = wave(1.1), values = start.clone(), gradients = at::zeros_like(values);
    Optimizer optimizer(options, values, gradients, alternating_ranges());
    optimizer.begin_step();  // without an update, as when all layers are frozen: so `missed` may be 1
    at::Tensor expected = at::zeros_like(values), average = at::zeros_like(values);
    for (int step = 0; step < 4; ++step) {
      gradients.copy_(gradient_of_step(step));
      optimizer.begin_step();
      optimizer.update(0.05, 2.0, {});
    }
    for (const UpdateRange& range : alternating_ranges()) {
      OptimizerOptions own = options;
      if (!range.decays) own.weight_decay = 0;
      const auto part = [&](const at::Tensor& of) { return of.narrow(0, range.begin, range.end - range.begin); };
      const at::Tensor alone = part(start).clone(), gradient = at::zeros_like(alone);
      Optimizer single(own, alone, gradient, {{.begin = 0, .end = alone.numel(), .missed = range.missed}});
      single.begin_step();
      for (int step = 0; step < 4; ++step) {
        gradient.copy_(part(gradient_of_step(step)));
        single.begin_step();
        single.update(0.05 * range.lr_factor, 2.0, {});
      }
      part(expected).copy_(alone);
      part(average).copy_(single.average());
    }
    for (const UpdateRange& range : alternating_ranges()) {
      const auto part = [&](const at::Tensor& of) { return of.narrow(0, range.begin, range.end - range.begin); };
      EXPECT_TRUE(at::allclose(part(values), part(expected), 1e-13, 1e-14)) << range.begin;
      EXPECT_TRUE(at::allclose(part(optimizer.average()), part(average), 1e-13, 1e-14)) << range.begin;
    }
  }
}

TEST(Lamb, OfManyParametersIsThatOfEachAndWaitsForNothing) {
  std::vector<at::Tensor> values, gradients, averages, squares;
  for (const std::int64_t size : {1, 7, 1000, 64}) {
    values.push_back((at::arange(size, at::kDouble) * 0.7 + 1).sin());
    gradients.push_back((at::arange(size, at::kDouble) * 1.3).cos());
    averages.push_back(at::zeros({size}, at::kDouble));
    squares.push_back(at::zeros({size}, at::kDouble));
  }
  for (const double decay : {0.0, 0.1}) {
    values[1].zero_();  // a norm of 0: the trust ratio is 1
    const auto copies = [](const std::vector<at::Tensor>& all) {
      std::vector<at::Tensor> copied;
      for (const at::Tensor& one : all) copied.push_back(one.clone());
      return copied;
    };
    const auto expected = copies(values), expected_averages = copies(averages), expected_squares = copies(squares);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const LambRule rule{.lr = 0.1, .weight_decay = decay, .steps = step};
      for (std::size_t i = 0; i < values.size(); ++i)
        update_lamb(rule, expected[i], gradients[i], expected_averages[i], expected_squares[i]);
      const OperatorCalls calls;
      update_lamb(rule, values, gradients, averages, squares);
      EXPECT_EQ(calls.of("aten::_local_scalar_dense"), 0) << "the host waits for a number";
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(at::allclose(values[i], expected[i], 1e-12, 1e-14)) << i;
      EXPECT_TRUE(at::allclose(averages[i], expected_averages[i], 1e-12, 1e-14)) << i;
      EXPECT_TRUE(at::allclose(squares[i], expected_squares[i], 1e-12, 1e-14)) << i;
    }
  }
}

TEST(Optimizer, DividesTheGradientFirst) {
  for (const OptimizerOptions& options : ours_too()) {
    const at::Tensor a = wave(1.1), b = a.clone(), gradient = gradient_of_step(0);
    Optimizer of_sum(options, a, gradient * 4), of_mean(options, b, gradient.clone());
    for (Optimizer* optimizer : {&of_sum, &of_mean}) optimizer->begin_step();
    of_sum.update(0.1, 4.0, {});
    of_mean.update(0.1, 1.0, {});
    EXPECT_TRUE(at::equal(a, b)) << describe(options);
  }
}

TEST(Optimizer, ContinuesFromRestoredStateAndStepCount) {
  for (const OptimizerOptions& options : ours_too()) {
    SCOPED_TRACE(describe(options));
    const at::Tensor values = wave(1.1), gradients = at::zeros_like(values);
    Optimizer optimizer(options, values, gradients);
    const auto step = [&](Optimizer& chosen, const at::Tensor& of, int number) {
      of.copy_(gradient_of_step(number));
      chosen.begin_step();
      chosen.update(0.1, 1.0, {});
    };
    for (int number = 0; number < 4; ++number) step(optimizer, gradients, number);

    const at::Tensor copy = values.clone(), copy_gradients = at::zeros_like(values);
    Optimizer resumed(options, copy, copy_gradients);
    for (std::size_t i = 0; i < optimizer.states().size(); ++i)
      resumed.states()[i].second.copy_(optimizer.states()[i].second);
    resumed.set_steps(optimizer.steps());
    for (int number = 4; number < 7; ++number) {
      step(optimizer, gradients, number);
      step(resumed, copy_gradients, number);
    }
    EXPECT_TRUE(at::equal(copy, values));
  }
}

TEST(Optimizer, UpdatesTheWholeOfALongBuffer) {
  const OptimizerOptions options{.kind = "rmsprop", .weight_decay = 0.1};
  const at::Tensor values = (at::arange((1 << 21) + 77, at::kDouble) * 0.7).sin();
  const at::Tensor gradients = values.cos(), expected = values.clone();
  Optimizer optimizer(options, values, gradients.clone());
  storage::TensorMap state;
  optimizer.begin_step();
  optimizer.update(0.1, 1.0, {});
  engine::test::reference_update(options, 0.1, 1, expected, gradients, state);
  EXPECT_TRUE(at::allclose(values, expected, 1e-12, 1e-13));
  EXPECT_TRUE(at::allclose(optimizer.states().at(0).second, state.at("square_avg"), 1e-12, 1e-13));
}

// The paper's algorithm (arXiv 2401.09135, c = 0), one push at a time.
TEST(Optimizer, DelayedNesterovFollowsThePaper) {
  const OptimizerOptions options{
      .kind = "momentum", .momentum = 0.8, .nesterov = true, .nesterov_delay = 4, .weight_decay = 0.05};
  const at::Tensor values = wave(1.1), gradients = at::zeros_like(values), theta = values.clone();
  at::Tensor m = at::zeros_like(theta), delta = at::zeros_like(theta);
  Optimizer optimizer(options, values, gradients);
  for (int t = 0; t < kSteps; ++t) {
    const double epsilon = 0.1 / (t + 1);
    gradients.copy_(gradient_of_step(t));
    optimizer.begin_step();
    optimizer.update(epsilon, 1.0, {});

    const at::Tensor g = gradient_of_step(t) + 0.05 * theta;
    delta = delta + g;
    theta.sub_(epsilon * g / 4);
    if ((t + 1) % 4 == 0) {
      m = 0.8 * m + delta / 4;
      theta.sub_(epsilon * 0.8 * m);
      delta = at::zeros_like(theta);
    }
    ASSERT_TRUE(at::allclose(values, theta, 1e-12, 1e-13)) << "push " << t;
  }
  EXPECT_TRUE(at::allclose(optimizer.states().at(0).second, m, 1e-12, 1e-13));
}

// Together, the pushes of all workers equal one Nesterov step on their mean.
TEST(Optimizer, DelayedNesterovOfARoundIsNesterovOnItsMean) {
  OptimizerOptions delayed{.kind = "momentum", .nesterov = true, .nesterov_delay = 6};
  OptimizerOptions plain = delayed;
  plain.nesterov_delay = 0;
  const at::Tensor values = wave(1.1), gradients = at::zeros_like(values), expected = values.clone();
  Optimizer optimizer(delayed, values, gradients);
  storage::TensorMap state;
  for (int round = 0; round < 4; ++round) {
    at::Tensor mean = at::zeros_like(values);
    for (int push = 6 * round; push < 6 * (round + 1); ++push) {
      gradients.copy_(gradient_of_step(push));
      mean += gradients / 6;
      optimizer.begin_step();
      optimizer.update(0.1, 1.0, {});
    }
    engine::test::reference_update(plain, 0.1, round + 1, expected, mean, state);
    ASSERT_TRUE(at::allclose(values, expected, 1e-12, 1e-13)) << "round " << round;
  }
}

}  // namespace
}  // namespace sluice::optim
