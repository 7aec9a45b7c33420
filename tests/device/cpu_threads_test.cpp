#include "device/cpu_threads.h"

#include <gtest/gtest.h>

#include <thread>

#include <ATen/Parallel.h>

namespace sluice::device {
namespace {

TEST(UseCpuThreads, EachThreadKeepsItsOwnCount) {
  int first = 0, second = 0;
  std::jthread([&] {
    use_cpu_threads(1);
    first = at::get_num_threads();
  }).join();
  std::jthread([&] {
    use_cpu_threads(2);
    second = at::get_num_threads();
  }).join();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

// Symptom: a worker of a parameter server trained with one thread in one of ten runs, because its sending thread had
// set one thread after the device's thread had set two.
TEST(UseCpuThreads, AThreadKeepsItsCountWhenAnotherOneSetsItsOwn) {
  int count = 0;
  std::jthread([&] {
    use_cpu_threads(2);
    std::jthread([] { use_cpu_threads(1); }).join();
    at::internal::lazy_init_num_threads();  // what the first parallel work of this thread does
    count = at::get_num_threads();
  }).join();
  EXPECT_EQ(count, 2);
}

TEST(ThreadsPerDevice, SharesTheCoresEvenlyUnlessTold) {
  EXPECT_EQ(threads_per_device(3, 8, 4), 3);
  EXPECT_EQ(threads_per_device(0, 1, 4), 4);
  EXPECT_EQ(threads_per_device(0, 2, 5.5), 2);
  EXPECT_EQ(threads_per_device(0, 16, 4), 1);
  EXPECT_EQ(threads_per_device(0, 1, 0.5), 1);
}

}  // namespace
}  // namespace sluice::device
