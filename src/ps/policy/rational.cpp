#include "ps/policy/rational.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

#include "core/check.h"
#include "core/error.h"

namespace sluice::ps {
namespace {

[[noreturn]] void throw_too_long() {
  throw ConfigError("these numbers have too many digits for an exact division; give fewer digits");
}

__int128 greatest_common_divisor(__int128 a, __int128 b) {
  if (a < 0) a = -a;
  while (b != 0) {
    const __int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::optional<int> exponent_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int exponent = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return exponent;
}

}  // namespace

Rational::Rational(Integer above, Integer below) : above_(above), below_(below) {
  if (below_ < 0) above_ = -above_, below_ = -below_;
  const Integer common = greatest_common_divisor(above_, below_);
  above_ /= common;
  below_ /= common;
}

Rational::Integer Rational::times(Integer a, Integer b) {
  Integer product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_too_long();
  return product;
}

Rational operator+(const Rational& a, const Rational& b) {
  Rational::Integer sum = 0;
  if (__builtin_add_overflow(Rational::times(a.above_, b.below_), Rational::times(b.above_, a.below_), &sum))
    throw_too_long();
  return {sum, Rational::times(a.below_, b.below_)};
}

Rational operator*(const Rational& a, const Rational& b) {
  const Rational crossed(a.above_, b.below_), other(b.above_, a.below_);  // reduced first, to avoid overflow
  return {Rational::times(crossed.above_, other.above_), Rational::times(crossed.below_, other.below_)};
}

Rational operator/(const Rational& a, const Rational& b) {
  check(b.above_ != 0, "a divisor that is not zero");
  return a * Rational(b.below_, b.above_);
}

std::int64_t Rational::floor() const {
  check(above_ >= 0, "a non-negative number to round down");
  const Integer whole = above_ / below_;
  if (whole > std::numeric_limits<std::int64_t>::max()) throw_too_long();
  return static_cast<std::int64_t>(whole);
}

Rational Rational::parse(std::string_view text, std::string_view name) {
  const std::size_t mark = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, mark);
  const std::size_t point = mantissa.find('.');
  std::string digits(mantissa.substr(0, point));
  int scale = 0;
  if (point != std::string_view::npos) {
    digits += mantissa.substr(point + 1);
    scale = static_cast<int>(mantissa.size() - point - 1);
  }
  const auto exponent = mark == std::string_view::npos ? std::optional(0) : exponent_of(text.substr(mark + 1));
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number || !exponent) throw ConfigError(name, " = '", text, "' is not a number; write one such as 0.00022595");
  Integer above = 0, power = 1;
  for (const char digit : digits) above = times(above, 10) + (digit - '0');
  for (int step = std::abs(*exponent - scale); step > 0; --step) power = times(power, 10);
  return *exponent >= scale ? Rational(times(above, power), 1) : Rational(above, power);
}

}  // namespace sluice::ps
