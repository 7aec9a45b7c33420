#include "core/error.h"
#include "text/tokenizer.h"
namespace sluice::text {
TokenizerParts parse_sentencepiece(std::string_view, const std::string& where) { throw ConfigError(where, ": later"); }
}  // namespace sluice::text
