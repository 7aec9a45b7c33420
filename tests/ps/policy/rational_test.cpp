#include "ps/policy/rational.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::ps {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Rational number(std::string_view text) { return Rational::parse(text, "--a"); }

TEST(Rational, IsWhatTheDecimalSays) {
  EXPECT_EQ(number("1.05"), Rational(21) / 20);
  EXPECT_EQ(number("0.00022595"), Rational(22595) / 100'000'000);
  EXPECT_EQ(number("2e-4"), Rational(1) / 5000);
  EXPECT_EQ(number("2.5E+3"), Rational(2500));
  EXPECT_EQ(number("7."), Rational(7));
  EXPECT_EQ(number(".5"), Rational(1) / 2);
  EXPECT_DOUBLE_EQ(number("0.006233854698278141").value(), 0.006233854698278141);
  for (const char* text : {"", ".", "-1", "1.2.3", "1e", "1ex", "1,5", "0x1", "nan", "1 "})
    EXPECT_THAT([&] { (void)number(text); },
                ThrowsMessage<ConfigError>(HasSubstr("is not a number; write one such as")))
        << text;
}

TEST(Rational, RoundsDownExactly) {
  EXPECT_EQ((number("1.05") * 50'000 / 5).floor(), 10'500);
  EXPECT_EQ((number("0.1") * 3).floor(), 0);
  EXPECT_EQ((number("1.1") * 10 + number("1e-9")).floor(), 11);
  EXPECT_EQ((number("1.1") * 10 - number("1e-9")).floor(), 10);
  EXPECT_FALSE((number("0.3") - number("0.1") * 3).is_positive());
}

TEST(Rational, RefusesWhatItCannotHold) {
  const auto too_long = ThrowsMessage<ConfigError>(HasSubstr("too many digits"));
  EXPECT_THAT([] { (void)number("1234567890123456789012345678901234567890"); }, too_long);
  EXPECT_THAT([] { (void)number("1e40"); }, too_long);
  EXPECT_THAT([] { (void)(number("0.12345678901234567891") * number("0.1234567890123456787")); }, too_long);
  EXPECT_THAT([] { (void)number("1e30").floor(); }, too_long);
}

}  // namespace
}  // namespace sluice::ps
