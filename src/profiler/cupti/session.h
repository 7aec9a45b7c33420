// session: the process's one CUPTI client, which collects GPU records for its lifetime. Discard the first step after a
// start, because CUPTI then instruments kernels.
// Threads: start(), collect() and the destructor from one thread; push() and pop() per thread. CUPTI calls back from
// any thread, and no lock is held while CUPTI is called.
// Memory: blocks are kept for later sessions, because CUPTI may return one after the end. Beyond a cap CUPTI drops
// records.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "core/recorder.h"
#include "profiler/cupti/records.h"
#include "profiler/names.h"

namespace sluice::cupti {

using profiler::Names;

struct SessionOptions {
  std::string library = "libcupti.so.13";
  std::size_t block_bytes = std::size_t{4} << 20;
  std::size_t blocks = 64;                            // each launching thread uses one at a time
  std::chrono::milliseconds hand_over_timeout{1000};  // for CUPTI's thread while it returns records
};

class Session {
 public:
  // Null without a driver, if another client has CUPTI, or in a build without it; `why` then has the reason.
  [[nodiscard]] static std::unique_ptr<Session> start(const SessionOptions& options, std::string& why);
  virtual ~Session() = default;
  // Whether another client has CUPTI now; `why` then names it. Does not claim CUPTI.
  [[nodiscard]] static bool is_taken(const SessionOptions& options, std::string& why);

  // Complete records since the last call. Requires, for the records of a step: its streams are idle. A block that CUPTI
  // does not return within `hand_over_timeout` counts as one dropped record and comes with a later call.
  [[nodiscard]] virtual Records collect() = 0;
  // Tags what the calling thread launches until pop().
  virtual void push(Tag tag) noexcept = 0;
  virtual void pop() noexcept = 0;
  // Device -1 for a CPU device's slot or a stream that CUPTI does not know.
  [[nodiscard]] virtual StreamKey key_of(const StreamName& stream) const = 0;
  [[nodiscard]] virtual Names& names() = 0;
};

}  // namespace sluice::cupti
