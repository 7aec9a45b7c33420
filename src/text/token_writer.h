// token_writer: writes a token file piece by piece, so that a process that was killed can go on (token_file.h has the
// format). Until finish() there are FILE.part, FILE.ends and FILE.progress beside it.
// Threads: one. Two writers must not write one file. Errors: StorageError if writing fails; what save() kept stays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/file_descriptor.h"
#include "storage/checksum.h"
#include "text/token_map.h"

namespace sluice::text {

// How far a writer came. The first two are the caller's.
struct TokenProgress {
  std::uint64_t input_bytes = 0;
  std::uint64_t records = 0;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
};

struct TokenFileLabel {
  std::uint64_t vocabulary;  // ids are less; up to 65,536 they take two bytes each, else four
  std::string tokenizer;     // XXH3-128 of the tokenizer's file
  std::string source;        // XXH3-128 of the text and of the options
  std::int64_t changed = 0;  // time of the text's last change
};

class TokenWriter {
 public:
  // Goes on if FILE.progress has this label, else begins.
  TokenWriter(std::filesystem::path file, TokenFileLabel label);

  [[nodiscard]] const TokenProgress& progress() const { return progress_; }

  // lengths: tokens of each document; their sum is ids.size().
  void append(std::span<const TokenId> ids, std::span<const std::uint64_t> lengths);
  // Makes all that was appended durable. input_bytes, records: of the text that it stands for.
  void save(std::uint64_t input_bytes, std::uint64_t records);
  // Puts the file into its place. Nothing may follow.
  void finish();

  // Removes what a writer left that was killed at the end of finish().
  static void remove_leftovers(const std::filesystem::path& file);

 private:
  void read_progress();
  void open();
  void write(const FileDescriptor& file, const std::filesystem::path& path, std::span<const std::byte> bytes);

  std::filesystem::path path_, part_path_, ends_path_, progress_path_;
  TokenFileLabel label_;
  std::uint32_t width_;
  TokenProgress progress_;
  FileDescriptor part_, ends_;
  storage::Digester digester_;
  std::string buffer_;
};

}  // namespace sluice::text
