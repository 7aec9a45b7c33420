// feature_read_ahead: reads rows of a FeatureFile into a bounded buffer before they are asked for, in a given order, in
// a thread of its own (from the first start() on). Which rows: a list; a row is known by its position in it. Who takes
// a row frees its cell in the buffer; who asks for one that is not there yet reads it by itself, and the thread passes
// over it. Rows that nobody takes stay, until somebody asks for one that is more than two buffers further on than the
// thread is: then the buffer is emptied, and the thread goes on from there. Threads: any; one start() or stop() at a
// time is served. Errors: none; a row that cannot be read is not there.
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
    std::uint32_t slot = 0;  // of the file
    std::uint32_t cell = 0;  // ours: the row of the buffer, or what has become of it
  };

  explicit FeatureReadAhead(const FeatureFile& file) : file_(file) {}

  // Forgets what was read, and reads these. The buffer takes at most buffer_bytes; without room for a row nothing is
  // read.
  void start(std::vector<Row> rows, std::uint64_t buffer_bytes);
  // Forgets everything and gives the buffer back. On return no read is under way: the file may change.
  void stop();

  // The row at this position of the list, if it is of this key and was read. Waits for it while it is being read.
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
  std::mutex control_;  // one start() or stop() at a time

  mutable std::mutex mutex_;  // of all below
  std::condition_variable_any changed_;
  FeatureFile::Layout layout_;
  MappedMemory buffer_;
  std::vector<Row> rows_;
  std::size_t next_ = 0;              // rows before it were read, taken or passed over
  std::vector<std::uint32_t> free_;   // cells of the buffer
  std::vector<std::uint32_t> holds_;  // position of the row in each cell; kNothing
  bool reading_ = false;
  bool forgetting_ = false;
  int taking_ = 0;  // rows that are being copied out
  std::jthread thread_;
};

}  // namespace sluice::data
