// Standard error is no terminal here: it is captured.
#include "core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/error.h"

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

TEST(Log, DropsLinesBelowItsLevel) {
  set_log_level(LogLevel::kWarning);
  EXPECT_THAT(captured([] {
                log_info("quiet");
                log_warning("loud");
              }),
              AllOf(HasSubstr("loud"), Not(HasSubstr("quiet"))));
  set_log_level(LogLevel::kInfo);
}

// /dev/full opens, and refuses every byte: a full disk.
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

}  // namespace
}  // namespace sluice
