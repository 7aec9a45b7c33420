// token_source: documents of tokens, from token files or from text. Threads: const, any number. Errors: DataError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/text_options.h"
#include "text/tokenizer.h"

namespace sluice::data {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual std::int64_t tokens() const = 0;
  [[nodiscard]] virtual std::int64_t documents() const = 0;
  // First token of a document; that of documents() is tokens().
  [[nodiscard]] virtual std::int64_t document_begin(std::int64_t document) const = 0;
  virtual void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const = 0;
};

struct OpenedTokens {
  std::unique_ptr<TokenSource> source;
  std::int64_t vocabulary = 0;  // 0: unknown
};
struct TokenFileOptions {
  std::int64_t vocabulary = 0;                // ids are below; 0: as the files say
  std::filesystem::path of_other_split = {};  // a token file that must have the same tokenizer; may be empty
  std::filesystem::path tokenizer = {};       // a warning if another file wrote the first one; may be empty
};
// One after the other, memory-mapped (text/token_file.h). DataError if they were not all written with one tokenizer, as
// far as they say, or if a file that is quickly read does not have its checksum.
[[nodiscard]] OpenedTokens open_token_files(const std::vector<std::filesystem::path>& files,
                                            const TokenFileOptions& options);

enum class TextPart { kAll, kFirstNineTenths, kLastTenth };  // by bytes, cut before a character or line

// Tokenizes a file on options.threads threads. Rows of .jsonl, .csv and .tsv are documents, with the text in the column
// options.text. Documents without tokens are left out, with a line in the log.
[[nodiscard]] std::unique_ptr<TokenSource> tokenize_documents(const std::filesystem::path& file,
                                                              const text::Tokenizer& tokenizer,
                                                              const TextOptions& options, TextPart part);

}  // namespace sluice::data
