#include "text/unicode.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>
#include <unicode/utf16.h>

#include <algorithm>

#include "core/check.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

bool is_as_old_as(char32_t point, int version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(point), age);
  return age[0] != 0 && (age[0] < version || (age[0] == version && age[1] == 0));
}

// The properties that hold but for kPropertyExceptions.
std::uint16_t rules(char32_t point) {
  const auto c = static_cast<UChar32>(point);
  const std::uint32_t category = U_GET_GC_MASK(c);
  std::uint16_t result = 0;
  const auto set_if = [&](Property property, bool holds) {
    if (holds) result |= static_cast<std::uint16_t>(property);
  };
  const auto is = [&](std::uint32_t categories, int newest) {
    return (category & categories) != 0 && is_as_old_as(point, newest);
  };
  const bool is_line_space = point == '\t' || point == '\n' || point == '\r';
  set_if(Property::kControl,
         point == kReplacementCharacter || (!is_line_space && is(U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK, 8)));
  set_if(Property::kPunctuation, point < 0x80 ? (category & (U_GC_P_MASK | U_GC_S_MASK)) != 0 : is(U_GC_P_MASK, 8));
  set_if(Property::kNonspacing, is(U_GC_MN_MASK, 8));
  set_if(Property::kMark, is(U_GC_M_MASK, 9));
  set_if(Property::kNumeric, (category & U_GC_N_MASK) != 0);
  set_if(Property::kSpace, u_isUWhiteSpace(c) != 0);
  set_if(Property::kWord, (category & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 || u_isUAlphabetic(c) != 0 ||
                              point == 0x200c || point == 0x200d);
  return result;
}

// The bit after the properties: the point is in kCategoryExceptions.
constexpr std::uint16_t kIsCategoryException = 128;

std::vector<std::uint16_t> all_properties() {
  std::vector<std::uint16_t> values(0x110000);
  for (char32_t point = 0; point < values.size(); ++point) {
    if (point < kFirstUnassigned || point >= kEndOfUnassigned) values[point] = rules(point);
  }
  for (const PropertyException& e : kPropertyExceptions) {
    const auto bit = static_cast<std::uint16_t>(e.property);
    for (char32_t point = e.first; point <= e.last; ++point) {
      values[point] = static_cast<std::uint16_t>(e.holds ? values[point] | bit : values[point] & ~bit);
    }
  }
  for (const CategoryException& e : kCategoryExceptions) {
    for (char32_t point = e.first; point <= e.last; ++point) values[point] |= kIsCategoryException;
  }
  return values;
}

std::uint16_t properties_of(char32_t point) {
  static const PointTable<std::uint16_t> kTable([values = all_properties()](char32_t each) { return values[each]; });
  return kTable[point];
}

const UNormalizer2* normalizer(bool compatibly) {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* found = compatibly ? unorm2_getNFKCInstance(&error) : unorm2_getNFCInstance(&error);
  check(U_SUCCESS(error), "ICU has its normalization data");
  return found;
}

}  // namespace

bool has_property(char32_t point, Property property) {
  return (properties_of(point) & static_cast<std::uint16_t>(property)) != 0;
}

bool is_cjk(char32_t point) {
  constexpr std::array<std::array<char32_t, 2>, 8> kRanges = {{{0x3400, 0x4dbf},
                                                               {0x4e00, 0x9fff},
                                                               {0xf900, 0xfaff},
                                                               {0x20000, 0x2a6df},
                                                               {0x2a700, 0x2b73f},
                                                               {0x2b740, 0x2b81f},
                                                               {0x2b920, 0x2ceaf},
                                                               {0x2f800, 0x2fa1f}}};
  return point >= 0x3400 && std::any_of(kRanges.begin(), kRanges.end(),
                                        [&](auto& range) { return point >= range[0] && point <= range[1]; });
}

Points lower(char32_t point) {
  Points result;
  const auto* end = std::end(kLowerExceptions);
  const auto* found = std::lower_bound(std::begin(kLowerExceptions), end, point,
                                       [](const LowerException& e, char32_t c) { return e.point < c; });
  if (found == end || found->point != point) {
    result.points[result.count++] = static_cast<char32_t>(u_tolower(static_cast<UChar32>(point)));
  } else {
    for (int i = 0; i < 3 && found->lower[i] != 0; ++i) result.points[result.count++] = found->lower[i];
  }
  return result;
}

Points decompose(char32_t point, bool compatibly) {
  static const UNormalizer2* const kCanonical = normalizer(false);
  static const UNormalizer2* const kCompatible = normalizer(true);
  Points result;
  std::array<UChar, 40> units{};
  UErrorCode error = U_ZERO_ERROR;
  const std::int32_t length =
      point < 0xa0 ? -1
                   : unorm2_getDecomposition(compatibly ? kCompatible : kCanonical, static_cast<UChar32>(point),
                                             units.data(), static_cast<std::int32_t>(units.size()), &error);
  if (length < 0 || !is_as_old_as(point, 9)) {
    result.points[result.count++] = point;
    return result;
  }
  for (std::int32_t i = 0; i < length;) {
    UChar32 part = 0;
    U16_NEXT(units.data(), i, length, part);
    result.points[result.count++] = static_cast<char32_t>(part);
  }
  return result;
}

std::uint8_t combining_class(char32_t point) {
  if (point < 0x300) return 0;
  const std::uint8_t found = u_getCombiningClass(static_cast<UChar32>(point));
  return found == 0 || !is_as_old_as(point, 9) ? 0 : found;
}

char32_t compose(char32_t first, char32_t second) {
  static const UNormalizer2* const kCanonical = normalizer(false);
  if (second < 0x300) return 0;
  const auto composed = unorm2_composePair(kCanonical, static_cast<UChar32>(first), static_cast<UChar32>(second));
  return composed < 0 || !is_as_old_as(static_cast<char32_t>(composed), 9) ? 0 : static_cast<char32_t>(composed);
}

char32_t like_in_pcre2(char32_t point) {
  if ((properties_of(point) & kIsCategoryException) == 0) return point;
  const auto* found = std::upper_bound(std::begin(kCategoryExceptions), std::end(kCategoryExceptions), point,
                                       [](char32_t c, const CategoryException& e) { return c < e.first; });
  return (found - 1)->like;
}

bool keeps_range_in_pcre2(char32_t first, char32_t last) {
  return std::all_of(std::begin(kCategoryExceptions), std::end(kCategoryExceptions), [&](const CategoryException& e) {
    const bool has_all = e.first >= first && e.last <= last;
    const bool has_none = e.last < first || e.first > last;
    return e.like >= first && e.like <= last ? has_all : has_none;
  });
}

std::size_t begin_of_spaces(std::string_view text, std::size_t end, std::size_t least) {
  while (end > least) {
    const char* at = text.data() + last_character(text, end);
    if (!has_property(next_point(at), Property::kSpace)) break;
    end = last_character(text, end);
  }
  return end;
}

std::size_t end_of_spaces(std::string_view text, std::size_t begin) {
  for (const char* at = text.data() + begin; begin < text.size(); begin = static_cast<std::size_t>(at - text.data())) {
    if (!has_property(next_point(at), Property::kSpace)) break;
  }
  return begin;
}

}  // namespace sluice::text
