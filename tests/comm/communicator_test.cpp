// Communicators whose backends wait for the other processes before they return, as NCCL's do while they connect.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <future>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace sluice::comm {
namespace {

struct DoneWork : c10d::Work {
  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
};

class Connecting : public c10d::Backend {
 public:
  explicit Connecting(std::shared_future<void> others) : c10d::Backend(0, 2), others_(std::move(others)) {}
  const std::string getBackendName() const override { return "nccl"; }  // NOLINT(readability-const-return-type)
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    begun_.set_value();
    others_.wait();
    return c10::make_intrusive<DoneWork>();
  }
  [[nodiscard]] std::future<void> begun() { return begun_.get_future(); }

 private:
  std::promise<void> begun_;
  std::shared_future<void> others_;
};

struct SlowWork : c10d::Work {
  bool isCompleted() override { return ++looks > 2; }
  bool wait(std::chrono::milliseconds) override {
    was_complete = looks > 2;
    return true;
  }
  void synchronize() override {}
  int looks = 0;
  bool was_complete = false;
};

struct Slow : c10d::Backend {
  Slow() : c10d::Backend(0, 2) {}
  const std::string getBackendName() const override { return "nccl"; }  // NOLINT(readability-const-return-type)
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return work;
  }
  c10::intrusive_ptr<SlowWork> work = c10::make_intrusive<SlowWork>();
};

// NCCL's wait() looks once a millisecond, which would be lost in every stage and step.
TEST(Communicator, PollsNcclOftenerThanItsWait) {
  const auto backend = c10::make_intrusive<Slow>();
  const Communicator communicator("stage 0", {}, backend, std::chrono::seconds(60));
  communicator.all_reduce(at::zeros({1})).wait();
  EXPECT_TRUE(backend->work->was_complete);
}

// Regression: two processes whose stages completed their first buckets in another order waited for each other.
TEST(Communicator, OneThatConnectsDoesNotHoldUpAnother) {
  constexpr std::chrono::seconds kMinute(60);
  std::promise<void> others_come, nobody_is_missing;
  nobody_is_missing.set_value();
  const auto waits = c10::make_intrusive<Connecting>(others_come.get_future().share());
  const auto goes_on = c10::make_intrusive<Connecting>(nobody_is_missing.get_future().share());
  const Communicator first("stage 0", {}, waits, kMinute), second("stage 1", {}, goes_on, kMinute);
  const auto sum = [](const Communicator& communicator) { communicator.all_reduce(at::zeros({1})).wait(); };
  std::future<void> of_first = std::async(std::launch::async, sum, std::cref(first));
  waits->begun().wait();
  std::future<void> of_second = std::async(std::launch::async, sum, std::cref(second));
  EXPECT_EQ(of_second.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  others_come.set_value();
  of_first.get();
  of_second.get();
}

}  // namespace
}  // namespace sluice::comm
