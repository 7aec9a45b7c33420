// autograd_marks: tags what is launched while an action of the executor runs, in its own thread and in autograd's,
// where the backward of GPU tensors runs: the tag travels there in LibTorch's thread-local debug info, and a callback
// around each backward function pushes it. A backward function belongs to the layer that ran when it was made, which
// its sequence number tells. While no object of this class lives nothing of it is called. Threads: made and destroyed
// while no step runs; the rest from any thread. One at a time.
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
  std::uint64_t callback_;  // LibTorch's handle of it
};

}  // namespace sluice::cupti
