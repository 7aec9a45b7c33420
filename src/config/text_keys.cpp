// text_keys: the keys of [data] for text.
#include "config/keys.h"

namespace sluice::config::internal {
namespace {

template <auto kMember>
Field text_data() {
  return field<&Config::data, kMember>();
}

Keys keys_of_files() {
  using C = DataConfig;
  return {
      {"data.tokenizer", text_data<&C::tokenizer>(), any(), "",
       "Tokenizer of squad, jsonl, csv and text: a tokenizer.json, vocab.txt or SentencePiece .model. Empty: the data "
       "set text has a token for each byte",
       kSource | kPerProcess},
      {"data.text_column", text_data<&C::text_column>(), any(), "", "Column of jsonl and csv that holds the text",
       kSource},
      {"data.pair_column", text_data<&C::pair_column>(), any(), "",
       "Column of jsonl and csv that holds a second text, for pairs. Empty: no pairs", kSource},
      {"data.label_column", text_data<&C::label_column>(), any(), "",
       "Column of jsonl and csv that holds the label: the name or number of a class, or with model.classes = 1 a "
       "number",
       kSource},
  };
}

Keys keys_of_tokens() {
  using C = DataConfig;
  return {
      {"data.max_length", text_data<&C::max_length>(), between(0, 1'000'000), "tokens",
       "Tokens of a sample, special tokens included; longer texts are cut, and those of squad make several windows. "
       "0: as many as the model has positions",
       kSource},
      {"data.stride", text_data<&C::stride>(), between(0, 1'000'000), "tokens",
       "Tokens that a window of squad shares with the one before", kSource},
      {"data.pad", text_data<&C::pad>(), words({"longest", "max"}), "",
       "Length of the samples of a batch. longest: of its longest sample. max: data.max_length", kSource | kAdvanced},
      {"data.by_length", text_data<&C::by_length>(), any(), "",
       "Whether samples of similar length share a batch, which saves padding. The order stays random except within "
       "50 batches. Not with a parameter server",
       kAdvanced},
      {"data.pack", text_data<&C::pack>(), words({"off", "documents", "joined"}), "",
       "Several documents of a language model in one sample. documents: attention stays within a document. joined: it "
       "crosses documents. off: samples are cut from the running text without regard to documents",
       kSource},
      {"data.documents", text_data<&C::documents>(), words({"file", "line", "blank"}), "",
       "What a document of the data set text is: a file, a line, or what blank lines separate. Each ends with the "
       "tokenizer's end-of-text token, if there is one and the model is no masked one",
       kSource},
      {"data.mask_share", text_data<&C::mask_share>(),
       RealRange{.low = 0, .high = 1, .low_open = true, .high_open = true}, "share",
       "Share of the tokens that a masked language model predicts; 80 % of them are masked, 10 % replaced, 10 % kept",
       kAdvanced},
  };
}

}  // namespace

Keys text_keys() { return joined({keys_of_files, keys_of_tokens}); }

}  // namespace sluice::config::internal
