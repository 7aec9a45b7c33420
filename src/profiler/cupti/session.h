// session: the process's one CUPTI client: from its start to its end the GPU's records are collected. Not here: whose
// work they are (attribute.h). The first start in a process costs more than later ones, and the first step after it is
// to be thrown away: CUPTI then instruments what it meets.
// Threads: start, collect(), the end: one. push(), pop(): any, each for itself. CUPTI calls back from threads of its
// own and from those that launch work. No lock of ours is held while CUPTI is called: it takes its own in between.
// Memory: blocks are made as CUPTI asks for them, up to a cap, and kept for later sessions: CUPTI may hand one back
// after the end. Past the cap CUPTI drops records and counts them.
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
  std::size_t blocks = 64;                            // one a thread that launches work is under way at a time
  std::chrono::milliseconds hand_over_timeout{1000};  // with CUPTI's thread, where it is handing records back
};

class Session {
 public:
  // Null where there is no driver, where another client has CUPTI, or in a build without it; `why` then says so.
  [[nodiscard]] static std::unique_ptr<Session> start(const SessionOptions& options, std::string& why);
  virtual ~Session() = default;
  // Another client has CUPTI at this moment; `why` then names it. It is neither taken nor kept.
  [[nodiscard]] static bool is_taken(const SessionOptions& options, std::string& why);

  // Records that are complete, since the last call. Requires, for those of a step: its streams are idle. A block with
  // one incomplete record comes later as a whole. A block that CUPTI's thread does not hand over within
  // `hand_over_timeout` counts as one dropped record; its records come with a later call.
  [[nodiscard]] virtual Records collect() = 0;
  // What the calling thread launches from now on is tagged with this, until pop().
  virtual void push(Tag tag) noexcept = 0;
  virtual void pop() noexcept = 0;
  // Device -1 for a CPU device's slot, or a stream that CUPTI does not know.
  [[nodiscard]] virtual StreamKey key_of(const StreamName& stream) const = 0;
  [[nodiscard]] virtual Names& names() = 0;
};

}  // namespace sluice::cupti
