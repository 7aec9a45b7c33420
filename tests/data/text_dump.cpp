// Prints a data set of texts for compare_text_sets.py:
//
//   text_dump NAME PATH SPLIT TOKENIZER MAX_LENGTH STRIDE TEXT TEXT2 LABEL [words]
//
// One JSON object for each sample: its fields, and of a question its id, its first token of the context, and the
// characters of the context's tokens.
#include <ATen/ATen.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/squad_dataset.h"

int main(int count, char** arguments) {
  using namespace sluice::data;
  const std::string split = arguments[3];
  const auto set = open_dataset({.name = arguments[1],
                                 .path = arguments[2],
                                 .text = {.tokenizer = arguments[4],
                                          .max_length = std::stoll(arguments[5]),
                                          .stride = std::stoll(arguments[6]),
                                          .text = arguments[7],
                                          .text2 = arguments[8],
                                          .label = arguments[9],
                                          .label_kind = count > 10 ? LabelKind::kClassOfEachWord : LabelKind::kClass}},
                                split == "train" ? Split::kTrain : Split::kTest);
  for (std::int64_t i = 0; i < set->size(); ++i) {
    nlohmann::json sample;
    for (const auto& [name, field] : set->read_fields({&i, 1})) {
      const at::Tensor values = field.flatten();
      const auto* const begin = values.const_data_ptr<std::int64_t>();
      sample[name] = std::vector<std::int64_t>(begin, begin + values.numel());
    }
    if (set->question_set() != nullptr) {
      const QuestionWindow window = set->question_set()->window(i);
      sample["id"] = set->question_set()->file().questions[window.question].id;
      sample["first"] = window.first_context;
      for (const auto& range : window.offsets) sample["offsets"].push_back({range.begin, range.end});
    }
    std::cout << sample << '\n';
  }
}
