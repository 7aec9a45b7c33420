// What goes wrong inside a stage, as one line and an exit code.
#include "pipeline/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <system_error>

#include <c10/util/Exception.h>

#include "device/memory.h"

namespace sluice::pipeline {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

template <typename Exception>
Error described(const Exception& exception) {
  return describe_failure(std::make_exception_ptr(exception), "replica 0 stage 1");
}

void expect_out_of_memory(const Error& error, const char* request) {
  EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("replica 0 stage 1: out of memory: "), HasSubstr(request),
                                  HasSubstr("smaller train.global_batch"), Not(HasSubstr("DefaultCPUAllocator"))));
}

TEST(DescribeFailure, AnAllocationThatFailedSaysHowMuchWasAskedFor) {
  const c10::SourceLocation here{"function", "file", 1};
  expect_out_of_memory(
      described(c10::Error(here,
                           "DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes. "
                           "Error code 12 (Cannot allocate memory)")),
      "no room for 74.5 GiB");
  expect_out_of_memory(
      described(c10::OutOfMemoryError(here, "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total")),
      "no room for 20.50 GiB");
  expect_out_of_memory(described(std::bad_alloc()), "the system refused an allocation");
}

TEST(DescribeFailure, ALimitNamesTheDeviceWhatWasAskedForAndWhatItHolds) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const device::MemoryUse use{
      .limit = 64 * kMiB, .current = 62 * kMiB, .by_kind = {{10 * kMiB, 12 * kMiB, 0, 40 * kMiB}}};
  const Error error = described(device::MemoryLimitError({device::DeviceKind::kCpu, 1}, 4 * kMiB, use));
  EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
  EXPECT_STREQ(error.what(),
               "replica 0 stage 1: out of memory on cpu:1: no room for 4.0 MiB in its device.memory_limit of 64.0 MiB, "
               "which holds activations 40.0 MiB, gradients 12.0 MiB, parameters 10.0 MiB; use more pipeline.chunks, "
               "more pipeline.stages or a smaller train.global_batch");
  const MemoryWords words{.less_memory = "use less", .work = "forward of conv1 with samples [16, 3, 32, 32]"};
  EXPECT_THAT(
      describe_failure(std::make_exception_ptr(device::MemoryLimitError({device::DeviceKind::kCpu, 1}, 4 * kMiB, use)),
                       "replica 0 stage 1", words)
          .what(),
      AllOf(
          testing::StartsWith("replica 0 stage 1, in forward of conv1 with samples [16, 3, 32, 32]: out of memory on "),
          testing::EndsWith("; use less")));
  EXPECT_TRUE(is_refused_by_limit(error.with_context("training")));
  EXPECT_FALSE(is_refused_by_limit(described(std::bad_alloc())));
  EXPECT_FALSE(is_refused_by_limit(DataError(error.what())));
}

TEST(DescribeFailure, NoMoreThreadsIsOutOfMemoryAndNamesTheKeys) {
  const Error error =
      described(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "thread"));
  EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
  EXPECT_THAT(error.what(), HasSubstr("data.workers"));
  EXPECT_EQ(described(std::system_error(std::make_error_code(std::errc::io_error))).exit_code(), ExitCode::kBug);
}

TEST(DescribeFailure, KeepsOurOwnErrorsAndCallsTheRestABug) {
  const Error data = described(DataError("sample 3: truncated"));
  EXPECT_EQ(data.exit_code(), ExitCode::kData);
  EXPECT_THAT(data.what(), AllOf(HasSubstr("stage 1"), HasSubstr("sample 3: truncated")));
  const Error torch = described(c10::Error({"function", "file", 1}, "size mismatch\nframe #0"));
  EXPECT_EQ(torch.exit_code(), ExitCode::kBug);
  EXPECT_THAT(torch.what(), AllOf(HasSubstr("LibTorch reports: size mismatch"), Not(HasSubstr("frame"))));
}

}  // namespace
}  // namespace sluice::pipeline
