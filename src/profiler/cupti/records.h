// records: GPU work and the calls that launched it. Times in nanoseconds of the host's clock (core/clock.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "profiler/cupti/tag.h"

namespace sluice::cupti {

struct StreamKey {
  int device = -1;
  std::uint32_t stream = 0;

  auto operator<=>(const StreamKey&) const = default;
};

enum class WorkKind : std::uint8_t { kKernel, kCopy, kPeerCopy, kSet, kGraph };

// A kernel, copy, memset, or the launch of a whole CUDA graph.
struct Work {
  WorkKind kind = WorkKind::kKernel;
  std::uint32_t correlation = 0;  // of the launching call; kernels of one graph launch share it
  StreamKey where;
  Nanoseconds begin = 0, end = 0;  // both 0: the device had no memory to record them
  int name = 0;
  std::uint64_t bytes = 0;
  bool is_communication = false;
};

struct Launch {
  std::uint32_t correlation = 0;
  std::uint32_t thread = 0;
  Nanoseconds begin = 0, end = 0;
};

struct External {
  std::uint32_t correlation = 0;
  Tag tag = kNoTag;
};

struct Wait {
  int type = 0;  // CUpti_ActivitySynchronizationType
  Nanoseconds begin = 0, end = 0;
};

struct Overhead {
  int kind = 0;  // CUpti_ActivityOverheadKind
  Nanoseconds begin = 0, end = 0;
};

struct Records {
  std::vector<Work> work;
  std::vector<Launch> launches;
  std::vector<External> externals;
  std::vector<Wait> waits;
  std::vector<Overhead> overheads;
  std::uint64_t dropped = 0;  // for lack of a buffer or of time to read it
  std::uint64_t unknown = 0;

  void append(Records more);
};

}  // namespace sluice::cupti
