// token_dataset: token sequences for language models. Without packing, sample i holds the tokens i * max_length to
// (i + 1) * max_length of the running text: inputs are all but the last, targets all but the first. Packed, samples are
// rows of whole documents, first fit in order; a longer document is cut into pieces. The target of a document's last
// token is kNoTarget.
// Fields: inputs, targets; mask if rows are padded or apart; positions if apart.
// Threads: const, any number. Errors: DataError for files; ConfigError for options that cannot work.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/token_source.h"

namespace sluice::data {

// Tokens begin to end of a source.
struct TokenRange {
  std::int64_t begin = 0, end = 0;
};
// name: of the data set. vocabulary: ids are below.
[[nodiscard]] std::unique_ptr<Dataset> make_token_dataset(const std::string& name, std::unique_ptr<TokenSource> source,
                                                          TokenRange range, std::int64_t vocabulary,
                                                          const TextOptions& options, Split split);

// path: a token file, whose last tenth is the test split, or a folder: files with "train" in their names, and with
// "val" or "test". Files: *.tokens of `sluice tokenize`, and *.bin of nanoGPT, llm.c and Megatron.
[[nodiscard]] std::unique_ptr<Dataset> open_tokens(const std::filesystem::path& path, const TextOptions& options,
                                                   Split split);

// path: a text file, whose last tenth is the test split, or a folder as of labelled_text.h with the endings of `name`:
// .txt for "text", else as there. The tokenizer is set.
[[nodiscard]] std::unique_ptr<Dataset> open_tokenized_text(const std::string& name, const std::filesystem::path& path,
                                                           const TextOptions& options, Split split);

}  // namespace sluice::data
