// token_file: reads files of token ids, memory-mapped: Sluice's own (token_writer.h), the .bin files of nanoGPT and
// llm.c, and Megatron's .bin with its .idx. docs/reference/tokenizers.md describes the formats.
// Errors: DataError for a file that is cut short, foreign, or does not fit its index, and for an id that the vocabulary
// does not have; OutOfMemoryError if no more files can be opened. Cutting a file short while it is mapped ends the
// process.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace sluice::text {

// What a token file holds, as views into its bytes. The parsers check everything but the ids.
struct TokenLayout {
  int width = 0;  // bytes of a token: 2 or 4
  std::uint64_t tokens = 0;
  std::uint64_t documents = 1;
  std::uint64_t vocabulary = 0;  // one more than the largest id; 0: unknown
  const std::byte* ids = nullptr;
  const std::byte* ends = nullptr;             // Sluice: documents x uint64; null: one document
  const std::byte* first_sequences = nullptr;  // Megatron: (documents + 1) x int64, into `sequences`
  const std::byte* sequences = nullptr;        // Megatron: offset of each sequence in bytes, int64
  std::uint64_t sequence_count = 0;
  std::string_view tokenizer;  // XXH3-128 of the tokenizer's file as 32 hexadecimal digits; empty: unknown
  std::string_view source;     // the same of the text and the options; empty: unknown

  [[nodiscard]] std::uint64_t end_of(std::uint64_t document) const;
};
// file: content of the file. index: content of Megatron's .idx. name: the file, for messages.
[[nodiscard]] TokenLayout parse_token_file(std::span<const std::byte> file, const std::string& name);
[[nodiscard]] TokenLayout parse_megatron(std::span<const std::byte> file, std::span<const std::byte> index,
                                         const std::string& name);

class TokenFile {
 public:
  // vocabulary: how many ids the reader of the tokens knows; 0: as many as the file says.
  explicit TokenFile(std::filesystem::path file, std::uint64_t vocabulary = 0);

  [[nodiscard]] std::uint64_t tokens() const { return layout_.tokens; }
  [[nodiscard]] std::uint64_t documents() const { return layout_.documents; }
  // First token of a document. document_begin(documents()) is tokens().
  [[nodiscard]] std::uint64_t document_begin(std::uint64_t document) const;

  [[nodiscard]] std::int64_t token(std::uint64_t i) const;
  void copy(std::uint64_t begin, std::uint64_t count, std::int64_t* out) const;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const TokenLayout& layout() const { return layout_; }

  // False if the file says that another tokenizer file wrote it.
  [[nodiscard]] bool may_be_of(const std::filesystem::path& tokenizer) const;
  // Reads the whole file and compares it with its checksum, if it has one.
  void verify() const;

 private:
  class Mapping {
   public:
    explicit Mapping(const std::filesystem::path& file);
    ~Mapping();
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&&) = delete;
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

   private:
    std::span<const std::byte> bytes_;
  };

  std::filesystem::path path_;
  Mapping file_;
  Mapping index_;  // empty, except for Megatron
  TokenLayout layout_;
  std::uint64_t end_id_;  // ids are less
};

// Sluice's format: this header, the ids, zeros up to a multiple of 8 bytes, then the end of each document as the index
// of a token. Numbers are little-endian.
struct TokenFileHeader {
  char magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'T', 'K'};
  std::uint32_t version = 1;
  std::uint32_t width = 0;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::uint64_t vocabulary = 0;
  char tokenizer[32] = {};
  char source[32] = {};
  char checksum[32] = {};  // XXH3-128 of all that follows the header, then of the header up to here
};
static_assert(sizeof(TokenFileHeader) == 136);

[[nodiscard]] inline std::uint64_t padding_after(std::uint64_t ids_bytes) { return (8 - ids_bytes % 8) % 8; }

}  // namespace sluice::text
