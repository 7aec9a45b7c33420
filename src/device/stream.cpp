#include "device/stream.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sluice::device {

namespace {

std::shared_ptr<backend::StreamState> new_queue(Device device, backend::Urgency urgency) {
  return device.kind == DeviceKind::kCuda ? backend::make_cuda_stream(device.index, urgency) : nullptr;
}

Device home_of(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return {};
  return {DeviceKind::kCuda, static_cast<int>(tensor.get_device())};
}

}  // namespace

Stream Stream::make(Device device) { return {device, new_queue(device, backend::Urgency::kNormal)}; }

Stream Stream::make_beside(Device device) { return {device, new_queue(device, backend::Urgency::kHigh)}; }

Stream Stream::current(Device device) {
  return {device, device.kind == DeviceKind::kCuda ? backend::current_cuda_stream(device.index) : nullptr};
}

StreamName Stream::name() const { return state_ ? StreamName{device_.index, state_->handle()} : StreamName{}; }

Event Stream::record() const { return state_ ? Event(state_->record()) : Event(); }

Moment Stream::moment() const {
  Moment moment;
  if (state_) {
    moment.state_ = state_->record_with_time();
  } else {
    moment.host_time_ = now_ns();
  }
  return moment;
}

Nanoseconds Moment::time(const Moment& base, Nanoseconds base_time) const {
  return state_ ? base_time + state_->since(*base.state_) : host_time_;
}

void Event::synchronize() const {
  if (state_) state_->synchronize();
}

void Stream::wait(const Event& event) const {
  if (state_ && event.state_) {
    state_->wait(*event.state_);
  } else {
    event.synchronize();
  }
}

void Stream::synchronize() const {
  if (state_) state_->synchronize();
}

void Stream::delay(Nanoseconds at_least) const {
  constexpr Nanoseconds kMost = 1'000'000'000;
  if (state_ && at_least > 0) state_->delay(std::min(at_least, kMost));
}

void Stream::keep_alive(const at::Tensor& tensor) const {
  if (state_) state_->keep_alive(tensor);
}

StreamGuard::StreamGuard(const Stream& stream) : guard_(stream.state_ ? stream.state_->make_current() : nullptr) {}

at::Tensor transfer(const at::Tensor& tensor, const Event& ready, const Stream& to, const CopyQueues& over) {
  if (!tensor.defined()) return tensor;
  const c10::Device target = torch_device(to.device());
  if (tensor.device() == target) {
    to.wait(ready);
    to.keep_alive(tensor);
    return tensor;
  }
  over.from.keep_alive(tensor);
  at::Tensor copy;
  {
    // ATen's copy_device_to_device copies on the source's current stream after an event of the target's stream, and
    // both continue after the copy. Setting both streams makes it irrelevant which of them waits for `ready`. A copy
    // between host and GPU uses the GPU's stream.
    const StreamGuard on_source(over.from), on_target(over.into);
    (target.is_cuda() ? over.into : over.from).wait(ready);
    // A copy from GPU to host blocks: its target is ordinary memory, which the host may read at once.
    copy = tensor.to(target, /*non_blocking=*/target.is_cuda());
  }
  if (over.into.name() == to.name()) return copy;
  to.wait(over.into.record());
  to.keep_alive(copy);
  return copy;
}

at::Tensor transfer(const at::Tensor& tensor, const Event& ready, const Stream& to) {
  if (!tensor.defined()) return tensor;
  const Stream from = Stream::current(home_of(tensor));
  return transfer(tensor, ready, to, {.from = from, .into = to});
}

}  // namespace sluice::device
