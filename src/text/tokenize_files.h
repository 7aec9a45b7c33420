// tokenize_files: makes token files of text files, on several threads, in the order of the text. A process that was
// killed goes on when the same is asked again: finished files are skipped, and at most the last two seconds of the
// current one are done again. The bytes do not depend on threads or interruptions.
// Memory: at most 64 MiB of text are encoded at a time, at 20 to 40 bytes each.
// Threads: one at a time in a folder, which is locked. Errors: ConfigError for outputs of one name or made from other
// text or options; DataError for damaged text; StorageError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "text/document_text.h"
#include "text/tokenizer.h"

namespace sluice::text {

struct TokenizeOptions {
  std::filesystem::path tokenizer, folder;
  DocumentRule rule = DocumentRule::kFile;
  std::string column = "text";
  std::string end_token = "auto";    // after each document; "none"; "auto": the end-of-text token, if there is one
  bool adds_special_tokens = false;  // those of the post-processor
  int threads = 1;
};

struct TokenizedFile {
  std::filesystem::path file;
  std::uint64_t tokens = 0, documents = 0;
  std::uint64_t empty = 0, repaired = 0;  // of what was done now: documents left out, documents with invalid UTF-8
  bool was_finished = false;
};

struct TokenizeProgress {
  std::filesystem::path file;
  std::uint64_t bytes = 0, all_bytes = 0;  // of all files
};

[[nodiscard]] std::vector<TokenizedFile> tokenize_files(
    const std::vector<std::filesystem::path>& files, const TokenizeOptions& options,
    const std::function<void(const TokenizeProgress&)>& on_progress);

}  // namespace sluice::text
