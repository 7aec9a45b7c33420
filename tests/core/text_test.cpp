#include "core/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace sluice {
namespace {

TEST(EditDistance, CountsSingleCharacterEdits) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(Nearest, PicksTheClosestWord) {
  const std::vector<std::string> keys{"train.lr", "train.steps", "model.name"};
  EXPECT_EQ(nearest("train.step", keys), "train.steps");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(DidYouMean, SuggestsWhatIsNearOrLongerAndNothingFarFetched) {
  const std::vector<std::string> names{"shapes", "fashion_mnist", "mnist"};
  EXPECT_EQ(did_you_mean("shape", names), "; did you mean 'shapes'?");
  EXPECT_EQ(did_you_mean("mnits", names), "; did you mean 'mnist'?");
  EXPECT_EQ(did_you_mean("fashion", names), "; did you mean 'fashion_mnist'?");
  EXPECT_EQ(did_you_mean("cifar10", names), "");
  EXPECT_EQ(did_you_mean("shape", names, 0), "; did you mean 'shapes'?") << "it begins with the word";
  EXPECT_EQ(did_you_mean("mnits", names, 1), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(Counted, KnowsOneAndMany) {
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "batch"), "0 batches");
  EXPECT_EQ(counted(2, "push"), "2 pushes");
  EXPECT_EQ(counted(3, "process"), "3 processes");
}

TEST(Text, SharesHaveTwoDigitsOrMore) {
  EXPECT_EQ(percent(0.004), "0.4 %");
  EXPECT_EQ(percent(0.0994), "9.9 %");
  EXPECT_EQ(percent(-0.0004), "0.0 %");
  EXPECT_EQ(percent(-0.001), "-0.1 %");
  EXPECT_EQ(percent(0.0996), "10 %");
  EXPECT_EQ(percent(1.234), "123 %");
}

TEST(Human, SizesAndDurations) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_count(11173962), "11.2 M");
  EXPECT_EQ(human_duration(4.24), "4.2 s");
  EXPECT_EQ(human_duration(200), "3 min 20 s");
  EXPECT_EQ(human_duration(3725), "1 h 02 min");
  EXPECT_EQ(human_duration(std::nan("")), "NaN s");
  EXPECT_EQ(human_duration(1e300), "1.00e+300 s");
}

TEST(Bytes, ReadWithAndWithoutAUnit) {
  EXPECT_EQ(parse_bytes("1000"), 1000);
  EXPECT_EQ(parse_bytes("512MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5 GiB"), std::int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2kb"), 2000);
  EXPECT_EQ(parse_bytes("7B"), 7);
  EXPECT_EQ(parse_bytes("3T"), 3'000'000'000'000);
  EXPECT_EQ(parse_bytes("-1.5 KiB"), -1536);
  EXPECT_EQ(parse_bytes("9223372036854775808"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_bytes("-99999999999 TiB"), std::numeric_limits<std::int64_t>::min());
  for (const auto* text : {"", "MiB", "-", "1 XB", "1 ib", "1e3", "1MiBB", "nan", "inf", "-inf", "5 M B!"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(Bytes, PrintedExactlyReadBackAsTheSame) {
  EXPECT_EQ(exact_bytes(std::int64_t{512} << 20), "512MiB");
  EXPECT_EQ(exact_bytes(1000), "1000B");
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 50, (std::int64_t{1} << 50) - 1024})
    EXPECT_EQ(parse_bytes(exact_bytes(bytes)), bytes);
}

TEST(Fixed, NamesWhatIsNoNumberAndShortensWhatIsHuge) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(fixed(3.14159, 2), "3.14");
  EXPECT_EQ(fixed(std::nan(""), 4), "NaN");
  EXPECT_EQ(fixed(-std::nan(""), 4), "NaN") << "whatever its sign";
  EXPECT_EQ(fixed(kInfinity, 1), "Infinity");
  EXPECT_EQ(fixed(-kInfinity, 1), "-Infinity");
  EXPECT_EQ(fixed(999999999999999.0, 0), "999999999999999");
  EXPECT_EQ(fixed(1e15, 0), "1.00e+15");
  EXPECT_EQ(fixed(-1.25e300, 3), "-1.250e+300");
}

TEST(Printable, ReplacesControlCharactersAndNothingElse) {
  EXPECT_EQ(printable("plain \u00e4\u00a0\u20ac text"), "plain \u00e4\u00a0\u20ac text");
  EXPECT_EQ(printable("\x1b[2Ja\nb\tc\rd\x7f"), "?[2Ja?b?c?d?");
  EXPECT_EQ(printable("a\u009b2Jb"), "a?2Jb") << "the C1 form of escape [";
  EXPECT_EQ(printable(std::string("\0\xff\xc2", 3)), "?\xff\xc2") << "bytes that are no UTF-8";
}

}  // namespace
}  // namespace sluice
