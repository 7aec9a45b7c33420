// json_components: the components of tokenizer.json around its model.
// Errors: ConfigError for a component that is not supported, DataError for a damaged one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json_node.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace sluice::text {

[[nodiscard]] std::vector<NormalizerStep> read_normalizer(const JsonNode& node);
[[nodiscard]] std::vector<PreTokenizerStep> read_pre_tokenizer(const JsonNode& node);
using TokenIds = std::function<TokenId(const std::string& token)>;  // kNoToken: unknown
[[nodiscard]] PostProcessor read_post_processor(const JsonNode& node, const TokenIds& id_of);
[[nodiscard]] std::vector<DecoderStep> read_decoder(const JsonNode& node);

}  // namespace sluice::text
