#include "text/document_encoder.h"

#include "text/utf8.h"

namespace sluice::text {

EncodedDocuments DocumentEncoder::encode(const DocumentText& rule, const std::vector<std::string_view>& records,
                                         std::uint64_t first) const {
  EncodedDocuments documents;
  Encoding encoding;
  std::string scratch, repaired;
  for (const std::string_view record : records) {
    const std::string_view text = rule.text_of(record, first++, scratch);
    const std::string_view valid = repair_utf8(text, repaired);
    documents.repaired += valid == text ? 0 : 1;
    encoding.clear();
    if (!valid.empty()) tokenizer_.encode(valid, {}, adds_special_tokens_, encoding);
    if (encoding.ids.empty()) {
      ++documents.empty;
      continue;
    }
    documents.ids.insert(documents.ids.end(), encoding.ids.begin(), encoding.ids.end());
    const bool has_end = adds_special_tokens_ && encoding.ids.back() == end_;
    const bool needs_end = end_ != kNoToken && !has_end;
    if (needs_end) documents.ids.push_back(end_);
    documents.lengths.push_back(encoding.ids.size() + (needs_end ? 1 : 0));
  }
  return documents;
}

std::string end_of_text_token(const Tokenizer& tokenizer) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]"}) {
    if (tokenizer.find(name) != kNoToken) return name;
  }
  return "";
}

}  // namespace sluice::text
