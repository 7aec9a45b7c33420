#include "train/study/child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/files.h"

namespace sluice::train {
namespace {

TEST(RunChild, WithoutAPipeThereIsALackOfFiles) {
  EXPECT_THAT(sluice::test::error_without_files([] { return run_child({"--version"}, 1.0); }),
              testing::HasSubstr("cannot make a pipe to another process; raise the limit on open files (ulimit -n"));
}

}  // namespace
}  // namespace sluice::train
