// Opens tokenizer files.
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/text.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

constexpr std::uintmax_t kMostFileBytes = std::uintmax_t{256} << 20;

std::string read_file(const std::filesystem::path& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error)
    throw DataError(file.string(), ": cannot be read: ", error.message(), "; give the path of a tokenizer file");
  if (size > kMostFileBytes)
    throw DataError(file.string(), ": has ", human_bytes(size), ", too much for a tokenizer file");
  std::ifstream stream(file, std::ios::binary);
  if (!stream && is_file_limit(errno)) too_many_open_files("cannot open " + file.string());
  std::string content(std::istreambuf_iterator<char>(stream), {});
  if (!stream || content.size() != size) throw DataError(file.string(), ": cannot be read to its end");
  return content;
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& file) {
  const std::string where = file.string();
  const std::string kind = file.extension().string();
  if (kind != ".json" && kind != ".txt" && kind != ".model") {
    throw ConfigError(where, ": expected a tokenizer.json, a vocab.txt or a SentencePiece .model file");
  }
  const std::string content = read_file(file);
  return std::make_shared<const Tokenizer>(kind == ".json"  ? parse_tokenizer_json(content, where)
                                           : kind == ".txt" ? parse_vocab_txt(content, where)
                                                            : parse_sentencepiece(content, where));
}

}  // namespace sluice::text
