// rational: fractions of whole numbers of up to 38 digits, so that what is rounded down is rounded down exactly: 1.05 x
// 50000 / 5 is 10500 and no rounding of it. From decimal text as people write it.
// Threads: values. Errors: ConfigError for text that is no number, and where digits do not suffice.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::ps {

class Rational {
 public:
  Rational(std::int64_t whole) : above_(whole) {}  // NOLINT(google-explicit-constructor): as numbers are written
  // "0.00022595", "1.05", "2e-4". `name`: of the option, for the message.
  static Rational parse(std::string_view text, std::string_view name);

  friend Rational operator+(const Rational& a, const Rational& b);
  friend Rational operator-(const Rational& a, const Rational& b) { return a + Rational(-b.above_, b.below_); }
  friend Rational operator*(const Rational& a, const Rational& b);
  friend Rational operator/(const Rational& a, const Rational& b);  // Requires: b is not 0
  friend bool operator==(const Rational&, const Rational&) = default;
  [[nodiscard]] bool is_positive() const { return above_ > 0; }

  [[nodiscard]] std::int64_t floor() const;  // Requires: not negative
  [[nodiscard]] double value() const { return static_cast<double>(above_) / static_cast<double>(below_); }

 private:
  using Integer = __int128;
  Rational(Integer above, Integer below);
  static Integer times(Integer a, Integer b);

  Integer above_ = 0;
  Integer below_ = 1;  // above 0; the fraction is in its lowest terms
};

}  // namespace sluice::ps
