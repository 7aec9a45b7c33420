#include "core/error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "core/check.h"

namespace sluice {
namespace {

TEST(Error, CarriesTheExitCodeOfItsKind) {
  EXPECT_EQ(ConfigError("x").exit_code(), ExitCode::kUsage);
  EXPECT_EQ(DataError("x").exit_code(), ExitCode::kData);
  EXPECT_EQ(CheckpointError("x").exit_code(), ExitCode::kCheckpoint);
  EXPECT_EQ(static_cast<int>(InterruptedError("x").exit_code()), 130);
}

TEST(Error, ContextGoesBeforeTheTextAndKeepsTheKind) {
  const Error error = DataError("file is short").with_context("replica 1, stage 0");
  EXPECT_STREQ(error.what(), "replica 1, stage 0: file is short");
  EXPECT_EQ(error.exit_code(), ExitCode::kData);
}

TEST(Error, TooManyOpenFilesCountAsALackOfMemory) {
  EXPECT_TRUE(is_file_limit(EMFILE) && is_file_limit(ENFILE));
  EXPECT_FALSE(is_file_limit(ENOENT));
  try {
    too_many_open_files("cannot read x: Too many open files");
    FAIL() << "it did not throw";
  } catch (const OutOfMemoryError& error) {
    EXPECT_TRUE(std::string_view(error.what())
                    .starts_with("cannot read x: Too many open files; raise the limit on open files (ulimit -n"));
  }
}

TEST(Check, NamesTheLineAndCountsAsOurBug) {
  check(true, "fine");
  try {
    check(false, "an empty queue");
    FAIL() << "check(false) did not throw";
  } catch (const BugError& error) {
    EXPECT_EQ(static_cast<int>(error.exit_code()), 70);
    EXPECT_NE(std::string(error.what()).find("expected: an empty queue"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("error_test.cpp"), std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
