// graph_fakes: what stands for CUDA graphs on CPU devices (device/graph.h), in two halves of the truth.
// WorkCalledAgain has the values: recording does nothing, and launch() calls the work again with all that was plain
// when it was recorded, on the same memory. What should reach it through memory and does not is that of another pass.
// What it leaves is written over by the next launch.
// WorkDoneOnce has the host's side: the work is called once, when it is recorded, on zeros; launch() does nothing.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "device/graph.h"

namespace sluice::test {

using Tensors = std::vector<at::Tensor>;

// Of all sequences that a factory has made.
struct GraphLog {
  std::atomic<int> sequences = 0, records = 0, launches = 0;
  std::atomic<int> fails_at = 0;  // the record that fails, from 1; 0: none does
};

// Sees that graphs run in the order in which they were recorded, all of them.
class FakeGraphs : public device::GraphSequence {
 public:
  explicit FakeGraphs(GraphLog& log) : log_(log) { ++log_.sequences; }

  [[nodiscard]] std::unique_ptr<device::Graph> record(const Tensors& inputs, const device::GraphWork& work) final {
    TORCH_CHECK(++log_.records != log_.fails_at, "operation not permitted when stream is capturing");
    Tensors fixed;
    for (const at::Tensor& input : inputs) fixed.push_back(input.defined() ? at::zeros_like(input) : at::Tensor());
    return std::make_unique<Fake>(*this, recorded_++, std::move(fixed), work);
  }

 protected:
  [[nodiscard]] virtual Tensors when_recorded(const Tensors& inputs, const device::GraphWork& work) const = 0;
  virtual void launch(const Tensors& inputs, const device::GraphWork& work, Tensors& outputs) = 0;

 private:
  class Fake final : public device::Graph {
   public:
    Fake(FakeGraphs& owner, int number, Tensors inputs, device::GraphWork work)
        : owner_(owner),
          number_(number),
          inputs_(std::move(inputs)),
          work_(std::move(work)),
          outputs_(owner.when_recorded(beside_autograd(inputs_), work_)) {}
    [[nodiscard]] const Tensors& inputs() const override { return inputs_; }
    [[nodiscard]] const Tensors& outputs() const override { return outputs_; }
    void launch() override {
      const bool begins_pass = number_ == 0 && owner_.next_ == owner_.recorded_;
      EXPECT_TRUE(number_ == owner_.next_ || begins_pass) << number_ << " after " << owner_.next_;
      owner_.next_ = number_ + 1;
      ++owner_.log_.launches;
      owner_.launch(inputs_, work_, outputs_);
    }

   private:
    // The same memory: autograd does not see what is written there later.
    static Tensors beside_autograd(const Tensors& tensors) {
      Tensors views;
      for (const at::Tensor& tensor : tensors)
        views.push_back(tensor.defined() ? tensor.variable_data() : at::Tensor());
      return views;
    }

    FakeGraphs& owner_;
    int number_;
    Tensors inputs_;
    device::GraphWork work_;
    Tensors outputs_;
  };

  GraphLog& log_;
  int recorded_ = 0;
  int next_ = 0;
};

class WorkCalledAgain final : public FakeGraphs {
 public:
  using FakeGraphs::FakeGraphs;

 protected:
  [[nodiscard]] Tensors when_recorded(const Tensors&, const device::GraphWork&) const override { return {}; }
  void launch(const Tensors& inputs, const device::GraphWork& work, Tensors& outputs) override {
    for (const at::Tensor& output : last_outputs_)
      if (output.defined()) at::Tensor(output).fill_(std::numeric_limits<double>::quiet_NaN());
    outputs = work(inputs);
    for (at::Tensor& output : outputs)
      if (output.defined()) output = output.detach().clone();  // beside what the stage keeps of it
    last_outputs_ = outputs;
  }

 private:
  Tensors last_outputs_;
};

class WorkDoneOnce final : public FakeGraphs {
 public:
  using FakeGraphs::FakeGraphs;

 protected:
  [[nodiscard]] Tensors when_recorded(const Tensors& inputs, const device::GraphWork& work) const override {
    return work(inputs);
  }
  void launch(const Tensors&, const device::GraphWork&, Tensors&) override {}
};

// log: it outlives what is made.
template <typename Fake>
[[nodiscard]] device::GraphFactory fake_graphs(GraphLog& log) {
  return [&log](const device::Stream&) { return std::make_unique<Fake>(log); };
}

}  // namespace sluice::test
