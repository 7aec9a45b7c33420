#include "core/terminal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace sluice {
namespace {

TEST(FitToWidth, LeavesWholeFieldsOutFromTheEnd) {
  const std::string line = "step 120/2814  loss 0.4321  ETA 3:12  712 samples/s";
  EXPECT_EQ(fit_to_width(line, 200), line);
  EXPECT_EQ(fit_to_width(line, static_cast<int>(line.size())), line);
  EXPECT_EQ(fit_to_width(line, static_cast<int>(line.size()) - 1), "step 120/2814  loss 0.4321  ETA 3:12");
  EXPECT_EQ(fit_to_width(line, 35), "step 120/2814  loss 0.4321") << "no half of a number";
  EXPECT_EQ(fit_to_width(line, 13), "step 120/2814");
  EXPECT_EQ(fit_to_width(line, 6), "step 1") << "the first field is cut";
  EXPECT_EQ(fit_to_width(line, 0), "");
  EXPECT_EQ(fit_to_width("", 10), "");
  EXPECT_EQ(fit_to_width("   three spaces", 5), "   th");
}

TEST(FitToWidth, KeepsUtf8Whole) {
  EXPECT_EQ(fit_to_width("Gr\u00f6\u00dfe", 4), "Gr\u00f6\u00df");
  EXPECT_EQ(fit_to_width("\u4e2d\u6587", 3), "\u4e2d") << "two columns each";
  EXPECT_EQ(fit_to_width("\u4e2d\u6587", 4), "\u4e2d\u6587");
  EXPECT_EQ(fit_to_width("a\xffz", 3), "a\xffz") << "a byte that is no UTF-8 counts as a column";
  EXPECT_EQ(fit_to_width("ab\xe4\xb8", 3), "ab\xe4") << "nor is what ends too early";
}

TEST(FitToWidth, NoControlCharacterMovesTheCursor) { EXPECT_EQ(fit_to_width("a\r\x1b[2J\nb", 80), "a??[2J?b"); }

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* const old = std::getenv(name);
    if (old != nullptr) old_ = old;
    had_ = old != nullptr;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { had_ ? ::setenv(name_, old_.c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST(Terminal, TellsItsWidthAtEachCallAndWhetherItTakesColours) {
  int ours = -1, theirs = -1;
  winsize size{.ws_row = 30, .ws_col = 50, .ws_xpixel = 0, .ws_ypixel = 0};
  if (::openpty(&ours, &theirs, nullptr, nullptr, &size) != 0) GTEST_SKIP() << "there is no terminal to be had here";
  const Variable columns("COLUMNS", "33"), no_colour("NO_COLOR", nullptr), kind("TERM", "xterm");
  EXPECT_EQ(terminal_columns(theirs), 50);
  size.ws_col = 200;
  ASSERT_EQ(::ioctl(theirs, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(terminal_columns(theirs), 200);
  size.ws_col = 0;
  ASSERT_EQ(::ioctl(theirs, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(terminal_columns(theirs), 33) << "COLUMNS, where the terminal does not say";
  EXPECT_TRUE(can_redraw(theirs));
  EXPECT_TRUE(takes_colours(theirs));
  {
    const Variable refusal("NO_COLOR", "1");
    EXPECT_TRUE(can_redraw(theirs));
    EXPECT_FALSE(takes_colours(theirs));
  }
  {
    const Variable dumb("TERM", "dumb");
    EXPECT_FALSE(can_redraw(theirs));
    EXPECT_FALSE(takes_colours(theirs));
  }
  ::close(ours);
  ::close(theirs);
}

TEST(Terminal, APipeIsNotATerminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Variable columns("COLUMNS", "wide");
  EXPECT_FALSE(can_redraw(ends[1]));
  EXPECT_FALSE(takes_colours(ends[1]));
  EXPECT_EQ(terminal_columns(ends[1]), 80);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace sluice
