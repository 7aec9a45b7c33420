// autograd_marks: tags work launched during an action, also in autograd's threads: the tag travels in LibTorch's
// thread-local debug info, and a backward function's layer is found by its sequence number. Without an object there is
// no overhead. Threads: constructed and destroyed while no step runs. One object at a time.
#pragma once

#include <cstdint>
#include <string>

#include "core/action_marks.h"
#include "profiler/cupti/session.h"

namespace sluice::cupti {

class AutogradMarks final : public ActionMarks {
 public:
  explicit AutogradMarks(Session& session);
  ~AutogradMarks() override;
  AutogradMarks(const AutogradMarks&) = delete;
  AutogradMarks& operator=(const AutogradMarks&) = delete;

  void enter(const ActionTag& action) noexcept override;
  void enter_layer(const std::string& name) noexcept override;
  void leave() noexcept override;

 private:
  Session& session_;
  std::uint64_t callback_;
};

}  // namespace sluice::cupti
