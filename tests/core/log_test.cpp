// Standard error is captured here, so it is not a terminal.
#include "core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"
#include "support/files.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

std::string captured(const auto& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Log, GivesEachLineOfATextItsOwnPrefix) {
  const std::string text = captured([] { log_lines("first\n\nthird\n"); });
  EXPECT_EQ(count(text, "info"), 3) << text;
  EXPECT_EQ(count(text, "\n"), 3) << text;
  EXPECT_THAT(text, AllOf(HasSubstr(" first\n"), EndsWith(" third\n")));
  EXPECT_EQ(captured([] { log_lines(""); }), "");
  EXPECT_THAT(captured([] { log_lines("no end"); }), EndsWith(" no end\n"));
}

TEST(Log, ALineIsOneLineWhateverItTells) {
  const std::string text = captured([] { log_error("a tensor \x1b[31mof\nsomebody"); });
  EXPECT_THAT(text, EndsWith("a tensor ?[31mof?somebody\n"));
}

TEST(Log, DropsLinesBelowItsLevel) {
  set_log_level(LogLevel::kWarning);
  EXPECT_THAT(captured([] {
                log_info("quiet");
                log_warning("loud");
              }),
              AllOf(HasSubstr("loud"), Not(HasSubstr("quiet"))));
  set_log_level(LogLevel::kInfo);
}

TEST(Log, ATableHasNoTimeBeforeItsLines) {
  EXPECT_EQ(captured([] { log_table("stage  ms\n    0  12"); }), "stage  ms\n    0  12\n");
  set_log_level(LogLevel::kWarning);
  EXPECT_EQ(captured([] { log_table("stage"); }), "");
  set_log_level(LogLevel::kInfo);
}

TEST(Log, AQuietConsoleShowsWarningsErrorsAndResultsAndTheFileHasAll) {
  const auto file = std::filesystem::path(testing::TempDir()) / "sluice_quiet_log.txt";
  std::filesystem::remove(file);
  log_to_file(file);
  quiet_console();
  const std::string text = captured([] {
    log_info("a step");
    log_lines("two\nlines");
    log_table("a  table");
    log_warning("beware");
    log_error("alas");
    log_result("done");
  });
  quiet_console(false);
  EXPECT_EQ(count(text, "\n"), 3) << text;
  EXPECT_THAT(text, AllOf(HasSubstr(" warning beware\n"), HasSubstr(" error   alas\n"), HasSubstr(" info    done\n")));
  std::ifstream in(file);
  const std::string written{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(count(written, "\n"), 7) << written;
  EXPECT_THAT(written, AllOf(HasSubstr(" a step\n"), HasSubstr("\na  table\n")));
  std::filesystem::remove(file);
}

TEST(Log, OutsideOfATerminalThereIsNoProgressAndNoEscapeSequence) {
  EXPECT_FALSE(progress_is_shown());
  EXPECT_EQ(captured([] {
              show_progress("step 1");
              show_progress("");
            }),
            "");
  EXPECT_THAT(captured([] { log_error("red on a terminal"); }), Not(HasSubstr("\x1b")));
}

// Writes to /dev/full fail as on a full disk.
TEST(Log, AFullDiskEndsTheFileWithOneWarning) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "sluice_log_test";
  std::filesystem::create_directories(folder);
  log_to_file("/dev/full");
  log_to_file(folder / "log.txt");
  const std::string text = captured([] {
    for (const char* line : {"one", "two", "three"}) log_info(line);
  });
  EXPECT_EQ(count(text, "the log file ends here"), 1) << text;
  EXPECT_THAT(text, AllOf(HasSubstr(" one\n"), HasSubstr(" three\n")));
  std::ifstream file(folder / "log.txt");
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(count(written, "\n"), 3) << written;
  std::filesystem::remove_all(folder);
}

TEST(Log, AFileThatCannotBeOpenedIsAStorageError) { EXPECT_THROW(log_to_file("/proc/none/log.txt"), StorageError); }

TEST(Log, TooManyOpenFilesAreNoFaultOfTheDisk) {
  const test::TempDir dir;
  EXPECT_THAT(test::error_without_files([&] { log_to_file(dir / "log.txt"); }),
              AllOf(HasSubstr("cannot write the log file"), HasSubstr("ulimit -n")));
}

}  // namespace
}  // namespace sluice
