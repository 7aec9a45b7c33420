#include "text/post_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::text {
namespace {

using testing::ElementsAre;

TextTokens text_of(TokenId first, std::uint32_t count) {
  TextTokens tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    tokens.ids.push_back(first + static_cast<TokenId>(i));
    tokens.offsets.push_back({i, i + 1});
    tokens.spaces.push_back({0, 0});
  }
  return tokens;
}

PostProcessor bert() {
  PostProcessor result;
  result.single = {{-1, {1}, 0}, {0, {}, 0}, {-1, {2}, 0}};
  result.pair = {{-1, {1}, 0}, {0, {}, 0}, {-1, {2}, 0}, {1, {}, 1}, {-1, {2}, 1}};
  return result;
}

std::vector<std::vector<TokenId>> windows(std::uint32_t first, std::uint32_t second, const Truncation& truncation) {
  const TextTokens a = text_of(10, first);
  const TextTokens b = text_of(20, second);
  std::vector<std::vector<TokenId>> ids;
  for (const Encoding& window : bert().windows(a, second > 0 ? &b : nullptr, true, truncation))
    ids.push_back(window.ids);
  return ids;
}

TEST(PostProcessor, PutsSpecialTokensAround) {
  const TextTokens a = text_of(10, 2);
  const TextTokens b = text_of(20, 1);
  Encoding out;
  bert().encode(a, &b, true, out);
  EXPECT_THAT(out.ids, ElementsAre(1, 10, 11, 2, 20, 2));
  EXPECT_THAT(out.type_ids, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(out.special_tokens_mask, ElementsAre(1, 0, 0, 1, 0, 1));
  EXPECT_THAT(out.sequence_ids, ElementsAre(-1, 0, 0, -1, 1, -1));
  EXPECT_EQ(out.offsets[3], (CharRange{0, 0}));
  bert().encode(a, nullptr, false, out);
  EXPECT_THAT(out.ids, ElementsAre(10, 11));
}

TEST(PostProcessor, CutsWindowsThatOverlap) {
  EXPECT_THAT(windows(5, 0, {.max_length = 5, .stride = 1}),
              ElementsAre(ElementsAre(1, 10, 11, 12, 2), ElementsAre(1, 12, 13, 14, 2)));
  EXPECT_THAT(windows(2, 3, {.max_length = 7, .stride = 1, .strategy = TruncationStrategy::kOnlySecond}),
              ElementsAre(ElementsAre(1, 10, 11, 2, 20, 21, 2), ElementsAre(1, 10, 11, 2, 21, 22, 2)));
  EXPECT_THAT(windows(4, 4, {.max_length = 7}),
              ElementsAre(ElementsAre(1, 10, 11, 2, 20, 21, 2), ElementsAre(1, 12, 13, 2, 20, 21, 2),
                          ElementsAre(1, 12, 13, 2, 22, 23, 2), ElementsAre(1, 10, 11, 2, 22, 23, 2)));
  EXPECT_THAT(windows(1, 0, {.max_length = 9}), ElementsAre(ElementsAre(1, 10, 2)));
}

std::string truncation_refusal(std::uint32_t first, std::uint32_t second, const Truncation& truncation) {
  try {
    (void)windows(first, second, truncation);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PostProcessor, RefusesATruncationThatCannotWork) {
  EXPECT_EQ(truncation_refusal(5, 0, {.max_length = 1}),
            "a maximum length of 1 tokens has no room for the 2 special tokens of the tokenizer");
  EXPECT_EQ(truncation_refusal(5, 0, {.max_length = 5, .stride = 3}),
            "the stride of 3 tokens must be less than the 3 tokens of the text that a window has room for");
  EXPECT_EQ(truncation_refusal(5, 0, {.max_length = 5, .strategy = TruncationStrategy::kOnlySecond}),
            "truncation \"only_second\" needs a pair of texts");
  EXPECT_EQ(
      truncation_refusal(5, 2, {.max_length = 7, .strategy = TruncationStrategy::kOnlySecond}),
      "the first text alone has 5 tokens, which leaves no room within 4 for the other text; raise the maximum length");
}

TEST(PostProcessor, TrimsSpacesFromOffsets) {
  TextTokens a;
  a.ids = {5, 6};
  a.offsets = {{0, 4}, {4, 8}};
  a.spaces = {{1, 0}, {1, 2}};
  PostProcessor processor;
  processor.trims_offsets = true;
  Encoding out;
  processor.encode(a, nullptr, true, out);
  EXPECT_THAT(out.offsets, ElementsAre(CharRange{1, 4}, CharRange{5, 6}));
  processor.adds_prefix_space = true;  // the first space is not of the text
  processor.encode(a, nullptr, true, out);
  EXPECT_THAT(out.offsets, ElementsAre(CharRange{0, 4}, CharRange{5, 6}));
}

}  // namespace
}  // namespace sluice::text
