// rational: exact fractions of integers of up to 38 digits, so that rounding down is exact: 1.05 x 50000 / 5 is 10500.
// Threads: values. Errors: ConfigError for text that is not a number, and on overflow.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::ps {

class Rational {
 public:
  Rational(std::int64_t whole) : above_(whole) {}  // NOLINT(google-explicit-constructor): as numbers are written
  static Rational parse(std::string_view text, std::string_view name);

  friend Rational operator+(const Rational& a, const Rational& b);
  friend Rational operator-(const Rational& a, const Rational& b) { return a + Rational(-b.above_, b.below_); }
  friend Rational operator*(const Rational& a, const Rational& b);
  friend Rational operator/(const Rational& a, const Rational& b);  // requires b != 0
  friend bool operator==(const Rational&, const Rational&) = default;
  [[nodiscard]] bool is_positive() const { return above_ > 0; }

  [[nodiscard]] std::int64_t floor() const;  // requires a non-negative number
  [[nodiscard]] double value() const { return static_cast<double>(above_) / static_cast<double>(below_); }

 private:
  using Integer = __int128;
  Rational(Integer above, Integer below);
  static Integer times(Integer a, Integer b);

  Integer above_ = 0;
  Integer below_ = 1;  // positive; the fraction is in lowest terms
};

}  // namespace sluice::ps
