// feature_read_ahead: a thread reads rows of a FeatureFile into a bounded buffer in the order of a list. Taking a row
// frees its cell. If a row is requested before it was read, the caller reads it, and the thread skips it. If a request
// is more than two buffers ahead of the thread, the buffer is emptied, and the thread continues from there.
// Threads: any; start() and stop() are serialised. Errors: nothing is thrown; a row that cannot be read is missing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/feature_file.h"
#include "data/feature_key.h"
#include "data/mapped_memory.h"

namespace sluice::data {

class FeatureReadAhead {
 public:
  struct Row {
    FeatureKey key;
    std::uint32_t slot = 0;  // slot in the file
    std::uint32_t cell = 0;  // set by FeatureReadAhead: cell of the buffer, or the row's state
  };

  explicit FeatureReadAhead(const FeatureFile& file) : file_(file) {}

  // Replaces the list and drops the rows read so far. The buffer takes at most buffer_bytes, at least one row.
  void start(std::vector<Row> rows, std::uint64_t buffer_bytes);
  // Drops the list and frees the buffer. When it returns, no read is running, so the file may change.
  void stop();

  // Copies the row at this position of the list if it has this key and was read. Waits if it is being read.
  bool take(std::uint32_t position, const FeatureKey& key, std::byte* row);

  [[nodiscard]] std::uint64_t mapped_bytes() const;
  [[nodiscard]] std::size_t rows_there() const;  // read and not taken

 private:
  bool has_work();
  [[nodiscard]] bool is_listed(std::uint32_t position, const FeatureKey& key) const;
  void run(const std::stop_token& stop);
  void read_next(std::unique_lock<std::mutex>& lock);
  void forget(std::unique_lock<std::mutex>& lock);
  void skip_to(std::uint32_t position);
  void free_cell(std::uint32_t cell);
  [[nodiscard]] std::byte* cell(std::uint32_t number) const { return buffer_.data() + number * layout_.slot_bytes; }

  const FeatureFile& file_;
  std::mutex control_;  // serialises start() and stop()

  mutable std::mutex mutex_;  // protects all members below
  std::condition_variable_any changed_;
  FeatureFile::Layout layout_;
  MappedMemory buffer_;
  std::vector<Row> rows_;
  std::size_t next_ = 0;  // rows before it were read, taken or skipped
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> holds_;  // position of the row in each cell, or kNothing
  bool reading_ = false;
  bool forgetting_ = false;
  int taking_ = 0;  // rows that are being copied out
  std::jthread thread_;
};

}  // namespace sluice::data
