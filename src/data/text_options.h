// text_options: how data sets of texts become samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "text/document_text.h"

namespace sluice::data {

enum class Packing {
  kNone,      // windows of the running text
  kTogether,  // whole documents, which see those before them in their row
  kApart,     // whole documents that do not see each other: their own numbers in the mask, their own positions
};

enum class LabelKind { kClass, kNumber, kClassOfEachWord, kNone };

struct TextOptions {
  std::filesystem::path tokenizer;                    // empty: text is read as bytes
  std::int64_t max_length = 384;                      // tokens of a sample
  std::int64_t stride = 128;                          // squad: tokens that a window shares with the one before
  bool pads_to_max = false;                           // false: to the longest sample of a batch
  bool always_has_mask = false;                       // as a feature cache needs it; false: only with padding
  Packing pack = Packing::kNone;                      // tokens, text
  std::string text = "text", text2, label = "label";  // columns of jsonl and csv; empty text2: one text
  LabelKind label_kind = LabelKind::kClass;           // kNone: the texts themselves are to be learnt
  // Of a model's head, in order; used if they hold all labels of the texts. If they are LABEL_0, LABEL_1, ..., whole
  // numbers as labels count as these too.
  std::vector<std::string> class_names = {};
  // Evaluations: a label that class_names lacks is an error, because the head has learned these classes.
  bool must_know_labels = false;
  text::DocumentRule documents = text::DocumentRule::kFile;  // of text
  // Around each document; without them it ends with the tokenizer's end-of-text token, if there is one.
  bool adds_special_tokens = false;
  std::int64_t vocabulary = 0;  // tokens: ids are below; 0: as the tokenizer or the files say
  int threads = 0;              // that tokenize; 0: one for each core
};

}  // namespace sluice::data
