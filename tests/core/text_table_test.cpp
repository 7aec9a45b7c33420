#include "core/text_table.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice {
namespace {

constexpr std::array kNameThenNumbers{Align::kLeft, Align::kRight};

TEST(TextTable, AlignsNamesLeftAndNumbersRight) {
  const std::vector<TextRow> rows{{"stage", "load", "step"}, {"replica 0", "0.25", "1234.50"}, {"r", "10.00", "1.00"}};
  EXPECT_EQ(text_table(rows, kNameThenNumbers),
            "stage       load     step\n"
            "replica 0   0.25  1234.50\n"
            "r          10.00     1.00");
}

TEST(TextTable, IsFlushLeftByDefaultWithoutSpacesAtTheEnds) {
  const std::vector<TextRow> rows{{"name", "what"}, {"shapes", "x"}, {"mnist", ""}};
  EXPECT_EQ(text_table(rows),
            "name    what\n"
            "shapes  x\n"
            "mnist");
}

TEST(TextTable, TakesRowsOfAnyLength) {
  const std::vector<TextRow> rows{{"a"}, {}, {"b", "22", "3"}};
  EXPECT_EQ(text_table(rows, kNameThenNumbers), "a\n\nb  22  3");
  EXPECT_EQ(text_table({}), "");
  EXPECT_EQ(text_table(rows, kNameThenNumbers, /*gap=*/1), "a\n\nb 22 3");
}

TEST(TextTable, CountsCodePointsNotBytes) {
  const std::vector<TextRow> rows{{"müß", "1"}, {"abcd", "2"}};
  EXPECT_EQ(text_table(rows), "müß   1\nabcd  2");
}

}  // namespace
}  // namespace sluice
