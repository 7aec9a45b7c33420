// The GPU kernels compiled for the CPU with a thread per GPU thread (emulated_cuda), compared with plain formulas in
// float64. On a GPU: cuda_test.cpp. Memory is filled with NaN before, so unwritten elements show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "core/rng.h"
#include "nn/cuda/batch_norm.cu"
#include "nn/cuda/bias_gelu.cu"
#include "nn/cuda/cross_entropy.cu"
#include "nn/cuda/dropout.cu"
#include "nn/cuda/layer_norm.cu"

namespace sluice::nn::gpu {
namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
using Floats = std::vector<float>;

struct Numbers {
  Numbers(std::span<const float> values, Number type) : type(type), floats(values.begin(), values.end()) {
    for (const float value : values) narrow(value, halves.emplace_back());
  }
  void* data() { return type == Number::kBf16 ? static_cast<void*>(halves.data()) : floats.data(); }
  [[nodiscard]] double at(std::int64_t i) const { return type == Number::kBf16 ? widened(halves[i]) : floats[i]; }
  Number type;
  Floats floats;
  std::vector<Bf16> halves;
};

class GpuEmulation : public testing::Test {
 protected:
  Floats random(std::int64_t count) {
    std::normal_distribution<float> normal;
    Floats values(count);
    for (float& value : values) value = normal(generator_);
    return values;
  }
  Numbers random_numbers(std::int64_t count, Number type) {
    const Numbers rounded(random(count), Number::kBf16);
    Floats values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(rounded.at(i)));
    return {values, type};
  }
  static Numbers unwritten(std::int64_t count, Number type) { return {Floats(count, kNothing), type}; }

  // Bound: one rounding of the result, and the float rounding of numbers of `size`.
  static void expect_near(double ours, double exact, Number type, double size, const char* what) {
    EXPECT_LE(std::abs(ours - exact), (type == Number::kBf16 ? 8e-3 : 2e-5) * std::max(size, 1.0)) << what;
  }

  static Floats summed(Floats& partial, std::int64_t columns) {
    Floats sums(columns, kNothing);
    launch_sum_pieces(partial.data(), {static_cast<std::int64_t>(partial.size()) / columns, columns}, sums.data(), {});
    return sums;
  }

 private:
  std::mt19937 generator_{7};
};

constexpr auto kTypes = {Number::kFloat, Number::kBf16};

TEST_F(GpuEmulation, DropoutDrawsTheNumbersOfTheCore) {
  const MaskNumbers mask{.layer_key = 77, .threshold = std::uint64_t{1} << 30, .kept = 1.25F};
  for (const Number type : kTypes) {
    for (const Matrix shape : {Matrix{1, 1}, Matrix{3, 3}, Matrix{2, 1000}, Matrix{1, 4097}}) {
      Numbers x = random_numbers(shape.rows * shape.columns, type), y = unwritten(shape.rows * shape.columns, type);
      std::vector<std::int64_t> ids;
      for (std::int64_t i = 0; i < shape.rows; ++i) ids.push_back(1000 - 7 * i);
      launch_dropout({x.data(), ids.data(), shape.rows, shape.columns, mask, y.data()}, type, {});
      for (std::int64_t i = 0; i < shape.rows * shape.columns; ++i) {
        const std::int64_t position = i % shape.columns;
        const auto key = derive_key(77, static_cast<std::uint64_t>(ids[i / shape.columns]));
        const auto word = philox(key, 0, static_cast<std::uint64_t>(position / 4))[position % 4];
        const Numbers exact(Floats{word < mask.threshold ? 0.0F : static_cast<float>(x.at(i)) * mask.kept}, type);
        ASSERT_EQ(y.at(i), exact.at(0)) << i;
      }
    }
  }
}

TEST_F(GpuEmulation, DropoutReadsTheStepFromMemory) {
  constexpr std::int64_t kSamples = 3, kCount = 1000;
  const std::vector<std::int64_t> ids{5, 0, 123'456'789'012};
  std::int64_t step = 0;
  const MaskNumbers by_memory{.layer_key = 77, .threshold = std::uint64_t{1} << 31, .kept = 2, .step = &step};
  for (const Number type : kTypes) {
    Numbers x = random_numbers(kSamples * kCount, type);
    for (step = 0; step < 3; ++step) {
      Numbers y = unwritten(kSamples * kCount, type), expected = unwritten(kSamples * kCount, type);
      MaskNumbers by_key = by_memory;
      by_key.layer_key = derive_key(77, static_cast<std::uint64_t>(step));
      by_key.step = nullptr;
      launch_dropout({x.data(), ids.data(), kSamples, kCount, by_memory, y.data()}, type, {});
      launch_dropout({x.data(), ids.data(), kSamples, kCount, by_key, expected.data()}, type, {});
      for (std::int64_t i = 0; i < kSamples * kCount; ++i) ASSERT_EQ(y.at(i), expected.at(i)) << step << ", " << i;
    }
  }
}

TEST_F(GpuEmulation, SumsOfManyPieces) {
  constexpr std::int64_t kPieces = 19, kColumns = 40;
  Floats partial = random(kPieces * kColumns);
  const Floats sums = summed(partial, kColumns);
  for (std::int64_t c = 0; c < kColumns; ++c) {
    double exact = 0;
    for (std::int64_t piece = 0; piece < kPieces; ++piece) exact += partial[piece * kColumns + c];
    expect_near(sums[c], exact, Number::kFloat, std::sqrt(static_cast<double>(kPieces)), "sum");
  }
}

double gelu_at(double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_slope_at(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0));
}

TEST_F(GpuEmulation, BiasGeluAndItsGradients) {
  for (const Number type : kTypes) {
    for (const auto& [rows, columns] : {Matrix{1, 1}, Matrix{3, 3}, Matrix{70, 260}, Matrix{130, 7}}) {
      Numbers x = random_numbers(rows * columns, type), grad = random_numbers(rows * columns, type),
              y = unwritten(rows * columns, type), grad_x = unwritten(rows * columns, type);
      const Floats bias = random(columns);
      Floats partial(pieces_of(rows).count * columns, kNothing);
      launch_bias_gelu({x.data(), bias.data(), {rows, columns}, y.data()}, type, GeluForm::kExact, {});
      launch_bias_gelu_backward({x.data(), bias.data(), grad.data(), {rows, columns}, grad_x.data(), partial.data()},
                                type, GeluForm::kExact, {});
      const Floats sums = summed(partial, columns);
      std::vector<double> exact(columns);
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const double before = x.at(i) + bias[i % columns], gradient = grad.at(i) * gelu_slope_at(before);
        expect_near(y.at(i), gelu_at(before), type, std::abs(before), "y");
        expect_near(grad_x.at(i), gradient, type, std::abs(gradient), "gradient of x");
        exact[i % columns] += gradient;
      }
      for (std::int64_t c = 0; c < columns; ++c)
        expect_near(sums[c], exact[c], Number::kFloat, std::sqrt(static_cast<double>(rows)), "gradient of the bias");
    }
  }
}

constexpr float kEpsilon = 1e-3F;

struct ExactLayerNorm {
  std::vector<double> y, grad_x;           // [rows, columns]
  std::vector<double> size;                // [rows, columns]: of the terms that make the gradient of x
  std::vector<double> of_weight, of_bias;  // [columns]

  ExactLayerNorm(const Numbers& x, const Numbers& grad, const Floats& weight, const Floats& bias, Matrix shape)
      : of_weight(shape.columns), of_bias(shape.columns) {
    for (std::int64_t row = 0; row < shape.rows; ++row) add_row(x, grad, weight, bias, row * shape.columns);
  }

 private:
  void add_row(const Numbers& x, const Numbers& grad, const Floats& weight, const Floats& bias, std::int64_t begin) {
    const auto columns = static_cast<std::int64_t>(weight.size());
    const auto count = static_cast<double>(columns);
    double mean = 0, squares = 0, mean_gradient = 0, mean_product = 0;
    for (std::int64_t c = 0; c < columns; ++c) mean += x.at(begin + c) / count;
    for (std::int64_t c = 0; c < columns; ++c) squares += std::pow(x.at(begin + c) - mean, 2);
    const double inverse = 1 / std::sqrt(squares / count + kEpsilon);
    const auto normalised = [&](std::int64_t c) { return (x.at(begin + c) - mean) * inverse; };
    for (std::int64_t c = 0; c < columns; ++c) {
      mean_gradient += grad.at(begin + c) * weight[c] / count;
      mean_product += grad.at(begin + c) * weight[c] * normalised(c) / count;
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      const double gradient = grad.at(begin + c) * weight[c];
      y.push_back(normalised(c) * weight[c] + bias[c]);
      grad_x.push_back(inverse * (gradient - mean_gradient - normalised(c) * mean_product));
      size.push_back(inverse * (std::abs(gradient) + std::abs(normalised(c))));
      of_weight[c] += grad.at(begin + c) * normalised(c);
      of_bias[c] += grad.at(begin + c);
    }
  }
};

TEST_F(GpuEmulation, LayerNormAndItsGradients) {
  for (const auto& [of_x, of_y] : {std::pair{Number::kFloat, Number::kFloat}, std::pair{Number::kFloat, Number::kBf16},
                                   std::pair{Number::kBf16, Number::kBf16}}) {
    for (const Matrix shape : {Matrix{1, 1}, Matrix{5, 3}, Matrix{65, 36}, Matrix{1, 1028}, Matrix{2, 1025}}) {
      const bool wants_sums = shape.columns < 1000;  // wider ones would cost seconds and show nothing else
      const std::int64_t count = shape.rows * shape.columns, parts = pieces_of(shape.rows).count * shape.columns;
      Numbers x = random_numbers(count, of_x), grad = random_numbers(count, of_y), y = unwritten(count, of_y),
              grad_x = unwritten(count, of_x);
      const Floats weight = random(shape.columns), bias = random(shape.columns);
      Floats mean(shape.rows, kNothing), inverse(shape.rows, kNothing), of_weight(parts, kNothing), of_bias = of_weight;
      launch_layer_norm({x.data(), weight.data(), bias.data(), shape, kEpsilon, y.data(), mean.data(), inverse.data()},
                        of_x, of_y, {});
      launch_layer_norm_backward(
          {x.data(), grad.data(), weight.data(), mean.data(), inverse.data(), shape, grad_x.data(),
           wants_sums ? of_weight.data() : nullptr, wants_sums ? of_bias.data() : nullptr},
          of_x, of_y, {});
      const ExactLayerNorm exact(x, grad, weight, bias, shape);
      SCOPED_TRACE(testing::Message() << shape.rows << " rows, " << shape.columns << " columns");
      for (std::int64_t i = 0; i < count; ++i) {
        expect_near(y.at(i), exact.y[i], of_y, std::abs(exact.y[i]), "y");
        expect_near(grad_x.at(i), exact.grad_x[i], of_x, exact.size[i], "gradient of x");
      }
      if (!wants_sums) continue;
      const Floats weight_sums = summed(of_weight, shape.columns), bias_sums = summed(of_bias, shape.columns);
      const double size = std::sqrt(static_cast<double>(shape.rows)) * 2;
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        expect_near(weight_sums[c], exact.of_weight[c], Number::kFloat, size, "gradient of the weight");
        expect_near(bias_sums[c], exact.of_bias[c], Number::kFloat, size, "gradient of the bias");
      }
    }
  }
}

// A missing target, every tenth class, and one that is no class.
std::vector<std::int64_t> targets_for(Matrix shape) {
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < shape.rows; ++row) targets.push_back(row * 10 % shape.columns);
  if (shape.rows > 2) targets[1] = kNoTargetOfRow;
  if (shape.rows > 3) targets[3] = shape.columns;
  return targets;
}

struct ExactCrossEntropy {
  double loss = 0, size = 0;
  std::vector<double> grad;

  ExactCrossEntropy(const Numbers& logits, std::int64_t begin, std::int64_t classes, std::int64_t target,
                    double smoothing) {
    double exponentials = 0, mean = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      exponentials += std::exp(logits.at(begin + c));
      mean += logits.at(begin + c) / static_cast<double>(classes);
      size = std::max(size, std::abs(logits.at(begin + c)));
    }
    const double log_sum = std::log(exponentials);
    loss = log_sum - (1 - smoothing) * logits.at(begin + target) - smoothing * mean;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double wanted = smoothing / static_cast<double>(classes) + (c == target ? 1 - smoothing : 0);
      grad.push_back(std::exp(logits.at(begin + c) - log_sum) - wanted);
    }
  }
};

constexpr auto kShapesOfLogits = {Matrix{1, 1}, Matrix{5, 3}, Matrix{8, 1000}, Matrix{5, 1028}, Matrix{4, 2051}};

TEST_F(GpuEmulation, CrossEntropyAndItsGradient) {
  constexpr float kFactor = 0.25F;
  for (const Number type : kTypes) {
    for (const Matrix shape : kShapesOfLogits) {
      for (const float smoothing : {0.0F, 0.1F}) {
        const auto [rows, classes] = shape;
        Numbers logits = random_numbers(rows * classes, type), grad = unwritten(rows * classes, type);
        const std::vector<std::int64_t> targets = targets_for(shape);
        Floats losses(rows, kNothing), log_sums(rows, kNothing);
        launch_cross_entropy({logits.data(), targets.data(), shape, smoothing, losses.data(), log_sums.data()}, type,
                             {});
        launch_cross_entropy_backward(
            {logits.data(), targets.data(), log_sums.data(), &kFactor, shape, smoothing, grad.data()}, type, {});
        for (std::int64_t row = 0; row < rows; ++row) {
          SCOPED_TRACE(testing::Message() << "row " << row << " of " << rows << ", " << classes << " classes");
          if (targets[row] == kNoTargetOfRow) {
            EXPECT_EQ(losses[row], 0);
            for (std::int64_t c = 0; c < classes; ++c) ASSERT_EQ(grad.at(row * classes + c), 0);
            continue;
          }
          if (targets[row] == classes) {
            EXPECT_TRUE(std::isnan(losses[row])) << "a target that is no class";
            continue;
          }
          const ExactCrossEntropy exact(logits, row * classes, classes, targets[row], smoothing);
          expect_near(losses[row], exact.loss, Number::kFloat, exact.size, "loss");
          for (std::int64_t c = 0; c < classes; ++c)
            expect_near(grad.at(row * classes + c), kFactor * exact.grad[c], type, 0.1, "gradient");
        }
      }
    }
  }
}

TEST_F(GpuEmulation, CrossEntropyShowsInfiniteLogits) {
  for (const Number type : kTypes) {
    for (const float bad : {std::numeric_limits<float>::infinity(), kNothing}) {
      for (const std::int64_t classes : {3, 2048}) {
        Floats values(2 * classes, 80);
        values[classes - 1] = bad;
        values[classes + 1] = -std::numeric_limits<float>::infinity();  // a probability of 0
        Numbers logits(values, type);
        const std::vector<std::int64_t> targets{0, 0};
        Floats losses(2, kNothing), log_sums(2, kNothing);
        launch_cross_entropy({logits.data(), targets.data(), {2, classes}, 0, losses.data(), log_sums.data()}, type,
                             {});
        EXPECT_TRUE(std::isnan(losses[0])) << bad;
        EXPECT_NEAR(losses[1], std::log(static_cast<double>(classes - 1)), 1e-4);
      }
    }
  }
}

// In row i, i logits come before the target's, one of them equal to it; the target's logit of row 4 is NaN.
Floats logits_by_rank(Matrix shape, const std::vector<std::int64_t>& targets) {
  const auto [rows, classes] = shape;
  Floats values;
  for (std::int64_t i = 0; i < rows * classes; ++i) values.push_back(static_cast<float>(i * 7919 % 13));
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] >= 0 && targets[row] < classes) values[row * classes + targets[row]] = row == 4 ? kNothing : 20;
    for (std::int64_t c = 0; c < std::min(row, classes); ++c)
      if (classes - 1 - c != targets[row]) values[(row + 1) * classes - 1 - c] = c == 1 ? 20 : 30;
  }
  return values;
}

bool is_hit(const Numbers& logits, std::int64_t begin, std::int64_t classes, std::int64_t target, int most) {
  if (target < 0 || target >= classes || std::isnan(logits.at(begin + target))) return false;
  int ahead = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    const double other = logits.at(begin + c), own = logits.at(begin + target);
    ahead += other > own || (other == own && c < target) ? 1 : 0;
  }
  return ahead < most;
}

TEST_F(GpuEmulation, HitsAreTheRanksOfTheTargets) {
  for (const Number type : kTypes) {
    for (const Matrix shape : kShapesOfLogits) {
      const std::vector<std::int64_t> targets = targets_for(shape);
      Numbers logits(logits_by_rank(shape, targets), type);
      unsigned long long hits[2] = {0, 0}, expected[2] = {0, 0};
      launch_count_hits({logits.data(), targets.data(), shape, hits}, type, {});
      for (std::int64_t row = 0; row < shape.rows; ++row) {
        const auto counts = [&](int most) {
          return is_hit(logits, row * shape.columns, shape.columns, targets[row], most) ? 1ULL : 0ULL;
        };
        expected[0] += counts(1);
        expected[1] += counts(5);
      }
      EXPECT_EQ(hits[0], expected[0]) << shape.rows << " rows of " << shape.columns;
      EXPECT_EQ(hits[1], expected[1]) << shape.rows << " rows of " << shape.columns;
    }
  }
}

TEST_F(GpuEmulation, BatchNormEndsWithResidualAndReluAndHidesNoOverflow) {
  constexpr std::int64_t kSamples = 2;
  for (const Number type : kTypes) {
    for (const bool channels_last : {false, true}) {
      for (const auto& [channels, plane] :
           {std::pair<std::int64_t, std::int64_t>{3, 49}, std::pair<std::int64_t, std::int64_t>{16, 36}}) {
        const std::int64_t count = kSamples * channels * plane;
        Numbers y = random_numbers(count, type), residual = random_numbers(count, type);
        const Numbers before = y;
        Floats inverse(channels, 0.5F);
        inverse[1] = 0;
        const Matrix shape = channels_last ? Matrix{kSamples * plane, channels} : Matrix{kSamples * channels, plane};
        launch_batch_norm_finish({residual.data(), inverse.data(), shape, channels, channels_last, true, y.data()},
                                 type, {});
        for (std::int64_t i = 0; i < count; ++i) {
          if ((channels_last ? i % channels : i / plane % channels) == 1) {
            EXPECT_TRUE(std::isnan(y.at(i)));
          } else {
            const double sum = before.at(i) + residual.at(i);
            expect_near(y.at(i), std::max(sum, 0.0), type, std::abs(sum), "y");
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::nn::gpu
