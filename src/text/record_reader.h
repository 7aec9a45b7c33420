// record_reader: cuts a file of text into records: lines, paragraphs, rows of CSV, or the whole file. Reads from the
// front; memory: one record and a block.
// Threads: one. Errors: DataError for what is not a regular file, cannot be read, or has a record of more than
// kMostRecordBytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/file_descriptor.h"

namespace sluice::text {

// Encoding a text takes up to 40 times its bytes.
inline constexpr std::uint64_t kMostRecordBytes = std::uint64_t{64} << 20;

enum class RecordKind { kLine, kParagraph, kFile, kCsvRow, kTsvRow };

[[nodiscard]] constexpr char delimiter_of(RecordKind kind) { return kind == RecordKind::kTsvRow ? '\t' : ','; }

// Follows the quotes of CSV, as Python's csv module reads them. TSV has none.
class CsvScanner {
 public:
  enum class Is { kText, kQuote, kFieldEnd, kRowEnd };

  explicit CsvScanner(char delimiter) : delimiter_(delimiter) {}
  Is next(char c) {
    if (state_ == State::kQuoted) return c == '"' ? (state_ = State::kQuoteEnded, Is::kQuote) : Is::kText;
    if (c == '"' && state_ == State::kQuoteEnded) return state_ = State::kQuoted, Is::kText;  // a doubled quote
    if (c == '"' && state_ == State::kFieldStart && delimiter_ != '\t') return state_ = State::kQuoted, Is::kQuote;
    state_ = c == delimiter_ || c == '\n' ? State::kFieldStart : State::kPlain;
    return c == delimiter_ ? Is::kFieldEnd : c == '\n' ? Is::kRowEnd : Is::kText;
  }

 private:
  enum class State { kFieldStart, kPlain, kQuoted, kQuoteEnded };
  char delimiter_;
  State state_ = State::kFieldStart;
};

class RecordReader {
 public:
  RecordReader(std::filesystem::path file, RecordKind kind);

  // Goes on at a record, as offset() and records() were when it was next.
  void seek(std::uint64_t offset, std::uint64_t records);

  // Appends the bytes of the next record without its end; false at the end of the file. Lines and rows may be empty.
  bool next(std::string& out);

  [[nodiscard]] std::uint64_t offset() const { return offset_; }    // of the next record
  [[nodiscard]] std::uint64_t records() const { return records_; }  // that were read
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }      // of the file
  [[nodiscard]] std::int64_t changed() const { return changed_; }   // time of its last change in nanoseconds

  // "line 7", for messages.
  [[nodiscard]] static std::string place(RecordKind kind, std::uint64_t record);

 private:
  bool fill();
  // Bytes of the record at the front, without and with its end; false: its end is not in the buffer.
  bool find_end(std::size_t& length, std::size_t& taken);

  std::filesystem::path path_;
  RecordKind kind_;
  FileDescriptor file_;
  std::uint64_t offset_ = 0, records_ = 0, bytes_ = 0;
  std::int64_t changed_ = 0;
  std::string buffer_;
  std::size_t at_ = 0;       // in the buffer, of the next record
  std::size_t scanned_ = 0;  // bytes of it that have been looked at
  std::size_t line_ = 0;     // in it, of its last line
  CsvScanner csv_;
};

}  // namespace sluice::text
