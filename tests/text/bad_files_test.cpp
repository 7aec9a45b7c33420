#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "small_tokenizers.h"

namespace sluice::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <typename Parse>
std::string refusal_by(Parse&& parse) {
  try {
    (void)parse();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("t.json: "), Not(HasSubstr("\n"))));
    return error.what();
  }
  ADD_FAILURE() << "was taken";
  return "";
}

std::string refusal(const std::string& json) {
  return refusal_by([&] { return parse_tokenizer_json(json, "t.json"); });
}

std::string refusal_of_part(std::string_view part) {
  return refusal(tokenizer_json(std::string(part) + ", " + std::string(kWordPiece)));
}

std::string refusal_of_post_processor(const std::string& members) {
  return refusal_of_part("\"post_processor\": {\"type\": " + members + "}");
}

std::string refusal_of_bpe(std::string_view members) {
  return refusal(tokenizer_json(R"("model": {"type": "BPE", )" + std::string(members) + "}"));
}

TEST(BadTokenizerJson, NamesTheComponentThatIsNotSupported) {
  EXPECT_EQ(
      refusal_of_part(
          R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "UnicodeScripts"}]})"),
      "t.json: pre_tokenizer.pretokenizers[1]: \"UnicodeScripts\" is not supported; docs/reference/tokenizers.md lists "
      "what is");
  EXPECT_THAT(refusal_of_part(R"("normalizer": {"type": "Precompiled"})"),
              StartsWith("t.json: normalizer: \"Precompiled\" is not supported"));
  EXPECT_THAT(refusal_of_part(R"("decoder": {"type": "CTC"})"),
              StartsWith("t.json: decoder: \"CTC\" is not supported"));
  EXPECT_THAT(refusal_of_part(R"("post_processor": {"type": "X"})"),
              StartsWith("t.json: post_processor: \"X\" is not supported"));
  EXPECT_THAT(refusal(tokenizer_json(R"("model": {"type": "Unigram"})")),
              StartsWith("t.json: model: \"Unigram\" is not supported"));
  EXPECT_EQ(refusal(R"({"version": "2.0", "model": {}})"), "t.json: version \"2.0\" is not supported, only \"1.0\"");
  EXPECT_EQ(refusal_of_bpe(R"("dropout": 0.1, "vocab": {}, "merges": [])"),
            "t.json: model.dropout: dropout of merges is not supported; set it to null");
}

TEST(BadTokenizerJson, SaysWhatIsMissingOrOfAnotherType) {
  EXPECT_THAT(refusal(bert_json().substr(0, 400)), StartsWith("t.json: is not a whole JSON file: "));
  EXPECT_THAT(refusal("\xff"), StartsWith("t.json: is not a whole JSON file: "));
  EXPECT_EQ(refusal("[]"), "t.json: expected an object, found a list of 0");
  EXPECT_EQ(refusal("{}"), "t.json: \"model\" is missing");
  EXPECT_EQ(refusal_of_bpe(R"("merges": [])"), "t.json: model: \"vocab\" is missing");
  EXPECT_EQ(refusal_of_bpe(R"("vocab": ["a"], "merges": [])"),
            "t.json: model.vocab: expected an object of tokens and ids, found a list of 1");
  EXPECT_EQ(refusal_of_bpe(R"("vocab": {"a": "0"}, "merges": [])"),
            "t.json: model.vocab: the id of token \"a\" is not a whole number");
  EXPECT_EQ(refusal_of_part(R"("normalizer": {"type": "Strip", "strip_left": 1, "strip_right": true})"),
            "t.json: normalizer.strip_left: expected true or false, found 1");
  EXPECT_EQ(refusal_of_part(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "ab"})"),
            "t.json: pre_tokenizer.replacement: expected one character, found \"ab\"");
  EXPECT_EQ(refusal_of_post_processor(R"("BertProcessing", "cls": ["a", 8], "sep": [1])"),
            "t.json: post_processor.sep: expected a token and its id, found a list of 1");
  EXPECT_EQ(refusal(R"({"model": {"vocab": {"a": 0}}})"), "t.json: model: \"type\" is missing");
  EXPECT_EQ(refusal_of_part(R"("normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "a"})"),
            "t.json: normalizer.pattern: expected a text that is not empty, found an object of 1");
  std::string steps = R"({"type": "NFC"})";
  for (int i = 0; i < 64; ++i) steps += R"(, {"type": "NFC"})";
  EXPECT_EQ(refusal_of_part(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + "]}"),
            "t.json: normalizer.normalizers: expected at most 64 steps, found a list of 65");
}

TEST(BadTokenizerJson, RefusesVocabulariesThatDoNotFit) {
  EXPECT_EQ(refusal_of_bpe(R"("vocab": {"a": 0, "b": 0}, "merges": [])"),
            "t.json: model.vocab: tokens \"a\" and \"b\" both have the id 0");
  EXPECT_EQ(refusal_of_bpe(R"("vocab": {"a": -1}, "merges": [])"),
            "t.json: model.vocab: token \"a\" has the id -1, expected 0 to 65539");
  EXPECT_THAT(refusal_of_bpe(R"("vocab": {"a": 18446744073709551615}, "merges": [])"),
              HasSubstr("expected 0 to 65539"));
  EXPECT_THAT(refusal_of_bpe(R"("vocab": {"a": 65540}, "merges": [])"), HasSubstr("expected 0 to 65539"));
  EXPECT_EQ(refusal_of_bpe(R"("vocab": {"a": 0, "b": 1}, "merges": ["a b"])"),
            "t.json: model: merge 0 (\"a\" and \"b\") needs the token \"ab\", which is not in the vocabulary");
  EXPECT_EQ(refusal_of_bpe(R"("vocab": {"a": 0}, "merges": [["a", "x"]])"),
            "t.json: model: merge 0 (\"a\" and \"x\") needs the token \"x\", which is not in the vocabulary");
  EXPECT_EQ(refusal_of_bpe(R"("vocab": {"a": 0}, "merges": ["a b c"])"),
            "t.json: model.merges: merge 0 is not two tokens");
  EXPECT_EQ(refusal_of_bpe(R"("unk_token": "?", "vocab": {"a": 0}, "merges": [])"),
            "t.json: model: the unknown token \"?\" is not in the vocabulary");
}

TEST(BadTokenizerJson, RefusesAddedTokensThatDoNotFit) {
  const auto with = [](const std::string& id_and_content) {
    return refusal_of_part(
        R"("added_tokens": [{"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true, )" +
        id_and_content + "}]");
  };
  EXPECT_EQ(with(R"("id": 5, "content": "[SEP]")"),
            "t.json: added_tokens: added token \"[SEP]\" has the id 5, expected 2 as in the vocabulary");
  EXPECT_EQ(with(R"("id": 12, "content": "x")"),
            "t.json: added_tokens: added token \"x\" has the id 12, expected 11, the next free one");
  EXPECT_EQ(with(R"("id": 11, "content": "")"), "t.json: added_tokens: the added token with the id 11 is empty");
  EXPECT_EQ(with(R"("id": 4294967296, "content": "x")"),
            "t.json: added_tokens[0].id: expected a number from 0 to 2147483647, found 4294967296");
  EXPECT_EQ(with(R"("id": -1, "content": "x")"),
            "t.json: added_tokens[0].id: expected a number from 0 to 2147483647, found -1");
  // Once more what the vocabulary has not: it must not shift the ids after it.
  const std::string token =
      R"({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true, "content": "x", "id": )";
  EXPECT_EQ(refusal_of_part("\"added_tokens\": [" + token + "11}, " + token + "12}]"),
            "t.json: added_tokens: added token \"x\" comes twice");
}

TEST(BadTokenizerJson, RefusesTemplatesThatCannotBeMerged) {
  const std::string a = R"({"Sequence": {"id": "A", "type_id": 0}})";
  const auto with = [](const std::string& special, const std::string& single) {
    return refusal_of_post_processor(R"("TemplateProcessing", "special_tokens": {)" + special +
                                     R"(}, "pair": [], "single": [)" + single + "]");
  };
  EXPECT_EQ(with("", a + "," + a), "t.json: post_processor.single: expected text A at most once, found a list of 2");
  const std::string cls = R"({"SpecialToken": {"id": "C\n", "type_id": 0}})";
  EXPECT_EQ(with("", cls), "t.json: post_processor.special_tokens: \"C?\" is missing");
  EXPECT_EQ(with(R"("C\n": {"id": "C\n", "ids": [1, 2], "tokens": ["[CLS]"]})", cls),
            "t.json: post_processor.special_tokens.C?: expected as many tokens as ids, found an object of 3");
  EXPECT_EQ(with(R"("C\n": {"id": "C\n", "ids": [1, 1], "tokens": ["[CLS]", "[SEP]"]})", cls),
            "t.json: post_processor.special_tokens.C?.ids[1]: expected the id of token \"[SEP]\", found 1");
}

TEST(BadTokenizerJson, RefusesPostProcessorsThatDoNotFit) {
  EXPECT_EQ(refusal_of_post_processor(R"("BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 999999])"),
            "t.json: post_processor.sep[1]: expected the id of token \"[SEP]\", found 999999");
  EXPECT_EQ(refusal_of_post_processor(R"("BertProcessing", "cls": ["[CLS]", -1], "sep": ["[SEP]", 2])"),
            "t.json: post_processor.cls[1]: expected a number from 0 to 2147483647, found -1");
  EXPECT_EQ(
      refusal_of_post_processor(
          R"("Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
                {"type": "RobertaProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2], "trim_offsets": false, "add_prefix_space": true}])"),
      "t.json: post_processor.processors[1]: RobertaProcessing after a ByteLevel that trims offsets is not supported");
}

TEST(BadVocabTxt, RefusesWhatIsNoVocabularyOfBert) {
  const auto refused = [](const std::string& text) {
    return refusal_by([&] { return parse_vocab_txt(text, "t.json"); });
  };
  EXPECT_EQ(refused(""), "t.json: has no line \"[PAD]\"; is it a vocab.txt of BERT?");
  EXPECT_EQ(refused("[PAD]\na\na \n"), "t.json: token \"a\" comes twice, with the ids 1 and 2");
  EXPECT_EQ(refused("[PAD]\na\xff\n"), "t.json: line 2 is not valid UTF-8");
}

}  // namespace
}  // namespace sluice::text
