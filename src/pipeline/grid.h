// grid: the stages of all local replicas, the devices that run them and the recorder of their threads. Internal to the
// executor; lives as long as any device thread may use it, even an abandoned one.
#pragma once

#include <memory>
#include <vector>

#include "core/recorder.h"
#include "pipeline/frozen_prefix.h"
#include "pipeline/stage.h"
#include "pipeline/stream_spans.h"

namespace sluice::pipeline {

// [replica][stage], all local replicas.
using StageGrid = std::vector<std::vector<std::unique_ptr<Stage>>>;

// [slot]; slots in one memory have the same prefix. Empty if no layer is frozen.
using PrefixGrid = std::vector<std::shared_ptr<FrozenPrefix>>;

struct Grid {
  StageGrid stages;
  PrefixGrid prefixes;
  std::vector<int> owners;                      // [stage]: the device that runs it (stage_owners())
  std::vector<std::vector<StageId>> stages_of;  // [device]; ascending
  std::shared_ptr<Recorder> recorder;
  std::vector<Track*> tracks;  // [slot]

  [[nodiscard]] int replicas() const { return static_cast<int>(stages.size()); }
  [[nodiscard]] int stages_per_replica() const { return static_cast<int>(owners.size()); }
  [[nodiscard]] int devices() const { return static_cast<int>(stages_of.size()); }
  [[nodiscard]] int slots() const { return replicas() * devices(); }
  [[nodiscard]] int slot(ReplicaId replica, DeviceId device) const {
    return index(replica) * devices() + index(device);
  }
  [[nodiscard]] int stage_index(ReplicaId replica, StageId stage) const {
    return index(replica) * stages_per_replica() + index(stage);
  }
  [[nodiscard]] int first_trained_stage() const {
    int first = 0;
    while (first < stages_per_replica() && !stage(ReplicaId{0}, StageId{first}).is_trained()) ++first;
    return first;
  }
  [[nodiscard]] Stage& stage(ReplicaId replica, StageId stage) const { return *stages[index(replica)][index(stage)]; }
  [[nodiscard]] StreamSpans open_spans(int slot, const device::Stream& stream) {
    return {recorder->open(*tracks[slot]), stream, recorder->marks()};
  }
};

}  // namespace sluice::pipeline
