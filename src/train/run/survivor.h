// survivor: which process of a run saves when another one is lost. Rank 0 does if it lives. If rank 0 is lost, another
// process saves. It has to see rank 0's run directory, on a disk that they share, and to get the directory's lock. A
// rank 0 that still runs keeps this lock. Not here: what is saved (engine/state.h), when the state is whole (loop.h).
// Threads: any. Errors: those of storage/run_dir.h and storage/checkpoint_store.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/lost_process.h"
#include "report/metrics_writer.h"
#include "storage/checkpoint.h"
#include "storage/run_dir.h"
#include "train/run/loop.h"
#include "train/setup/peers.h"
#include "train/setup/run_state.h"

namespace sluice::train {

// Rank 0's run directory, by which the other processes know whether they see the same one.
struct RunDirId {
  std::filesystem::path path;  // absolute
  std::uint64_t inode = 0;     // of the directory, on every machine that shares the disk

  // The path as numbers: its bytes need not be UTF-8, and JSON text must be.
  [[nodiscard]] nlohmann::json to_json() const {
    return {{"path", std::vector<std::uint8_t>(path.native().begin(), path.native().end())}, {"inode", inode}};
  }
  [[nodiscard]] static RunDirId from_json(const nlohmann::json& json) {
    const std::vector<std::uint8_t> bytes = json.at("path");
    return {std::string(bytes.begin(), bytes.end()), json.at("inode")};
  }
};
[[nodiscard]] RunDirId id_of(const storage::RunDir& run_dir);

// Whether process `rank` saves after this loss.
[[nodiscard]] bool saves_after(const comm::LostProcess& lost, int rank);

// What a loop needs, which `peers` outlives. save: as LoopPeers has it.
[[nodiscard]] LoopPeers loop_peers(Peers& peers, std::function<void(const Progress&)> save);
// Saves what `loop`, of process `rank`, has trained if this process is the one to do so. The loop outlives it.
[[nodiscard]] Peers::BeforeEnd rescue_before_end(Loop& loop, int rank);

// Saves the state after `step` in the place of rank 0, which is lost, unless a checkpoint of that step or a later one
// is there. Removes no checkpoint: only rank 0 knows which of them must stay. Records of later steps are left out when
// the run goes on. Where nothing can be saved, a warning or a StorageError says why.
void save_for_rank_0(const RunDirId& run_dir_id, std::int64_t step,
                     const std::function<storage::CheckpointContents(const report::MetricsPosition&)>& capture);

}  // namespace sluice::train
