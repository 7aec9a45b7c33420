#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

std::string repaired(std::string_view text) {
  std::string buffer;
  return std::string(repair_utf8(text, buffer));
}

TEST(Utf8, ReplacesEachMaximalWrongPart) {
  EXPECT_EQ(repaired("a\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80"), "a\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80");
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(repaired("a\xff"), "a" + r);
  EXPECT_EQ(repaired("\xe6\x97z"), r + "z");               // cut short: one part
  EXPECT_EQ(repaired("\xf0\x9f\x98"), r);                  // at the end, too
  EXPECT_EQ(repaired("\xc0\xaf"), r + r);                  // overlong
  EXPECT_EQ(repaired("\xed\xa0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(repaired("\xf4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(repaired("\x80\xc3\xa9\xc3"), r + "\xc3\xa9" + r);
}

TEST(Utf8, WritesWhatItReads) {
  for (const char32_t point : {U'a', U'\u00e9', U'\u65e5', U'\U0001f600', U'\U0010ffff'}) {
    std::string text;
    append_point(text, point);
    const char* at = text.data();
    EXPECT_EQ(next_point(at), point);
    EXPECT_EQ(at, text.data() + text.size());
  }
  EXPECT_EQ(count_points("a\xc3\xa9\xf0\x9f\x98\x80"), 3U);
}

TEST(Unicode, HasTheTablesOfTokenizers) {
  EXPECT_TRUE(has_property(U'$', Property::kPunctuation));        // of ASCII all, also symbols
  EXPECT_FALSE(has_property(U'\u00a3', Property::kPunctuation));  // of others punctuation only
  EXPECT_TRUE(has_property(0x166d, Property::kPunctuation));      // was, in Unicode 8
  EXPECT_FALSE(has_property(0x61d, Property::kPunctuation));      // newer than Unicode 8
  EXPECT_TRUE(has_property(0x11de0, Property::kNumeric));         // of Unicode 17
  EXPECT_FALSE(has_property(U'\t', Property::kControl));
  EXPECT_TRUE(has_property(0x200b, Property::kControl));
  EXPECT_FALSE(has_property(0x378, Property::kControl));  // unassigned
  EXPECT_TRUE(has_property(0x3000, Property::kSpace));
  EXPECT_TRUE(is_cjk(U'\u65e5') && !is_cjk(U'\u3042'));
}

std::u32string all(const Points& points) { return {points.begin(), points.end()}; }

TEST(Unicode, LowersAndDecomposes) {
  EXPECT_EQ(all(lower(U'A')), U"a");
  EXPECT_EQ(all(lower(0x130)), U"i\u0307");
  EXPECT_EQ(all(lower(0x16ea0)), U"\U00016ebb");  // of Unicode 17
  EXPECT_EQ(all(decompose(U'\u1ead', false)), U"a\u0323\u0302");
  EXPECT_EQ(all(decompose(U'\ufb01', false)), U"\ufb01");
  EXPECT_EQ(all(decompose(U'\ufb01', true)), U"fi");
  EXPECT_EQ(all(decompose(0x32ff, true)), U"\u32ff");  // newer than Unicode 9
  EXPECT_EQ(compose(U'a', 0x323), U'\u1ea1');
  EXPECT_EQ(compose(U'a', U'b'), 0U);
  EXPECT_EQ(combining_class(0x323), 220);
}

TEST(ByteLevel, WritesBytesAsPrintableCharacters) {
  EXPECT_EQ(byte_character(' '), 0x120U);
  EXPECT_EQ(byte_character('a'), U'a');
  EXPECT_EQ(bytes_of_characters("\xc4\xa0hi"), " hi");
  EXPECT_EQ(bytes_of_characters("\xe6\x97\xa5"), std::nullopt);
  EXPECT_EQ(byte_token(10), "<0x0A>");
  EXPECT_EQ(byte_of_token("<0x0a>"), 10);
  for (const char* token : {"<0x0A", "<0x-1>", "<0xG0>", "<0x1>", "(0x11>"})
    EXPECT_EQ(byte_of_token(token), std::nullopt);
  for (unsigned byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(byte_of_character(byte_character(static_cast<std::uint8_t>(byte))), byte);
  }
}

}  // namespace
}  // namespace sluice::text
