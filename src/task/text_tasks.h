// text_tasks: tasks of models that read tokens. Each score is computed from sums; the main score comes first.
// All take the fields of text_inputs(), of which a batch may lack all but the first. Loss in float32, or in float64 if
// the outputs are. Threads: as in task.h.
#pragma once

#include <string>
#include <vector>

#include "task/task.h"

namespace sluice::task {

// inputs: token ids; mask: 1 for tokens and 0 for padding, or the number of the document, from 1; types: 0 and 1 for
// the texts of a pair; positions. Each [n, T] int64.
[[nodiscard]] const std::vector<std::string>& text_inputs();

// Outputs: logits [n, classes]; targets: a class per sample [n]. The loss is cross-entropy. Scores: "top1"; of two
// classes also "f1" of class 1 in percent, and "mcc", the Matthews correlation from -1 to 1. A score whose denominator
// is 0 is 0, as in scikit-learn.
[[nodiscard]] TaskPtr make_sequence_classification(std::int64_t classes, double label_smoothing = 0);

// Outputs: [n, 1] or [n, numbers]; targets: as many floating-point numbers. The loss is the squared error of a number.
// Score: "pearson", the correlation of outputs and targets; 0 if either is constant.
[[nodiscard]] TaskPtr make_regression();

// Outputs: logits [n, T, labels]; targets: a label per position [n, T], or kNoTarget. The loss is cross-entropy.
// Scores: if a label is B-NAME, "f1" of entities in percent, as seqeval counts IOB2 labels by default: an entity is
// right if its name and both ends are. Positions without a target are left out. Then "top1".
[[nodiscard]] TaskPtr make_token_classification(const std::vector<std::string>& labels);

// Outputs: logits [n, T, 2] for the first and the last token of an answer. Targets `starts` and `ends`: positions [n]
// below T, or kNoTarget. The loss is the cross-entropy of starts and ends, each of which is a target; as in Hugging
// Face, the question's tokens count, too; padding does not, because the model sets its logits to -1e30. Scores by the
// largest logits, in percent of the windows that have both targets: "span_f1", the overlap with the tokens of the
// answer, and "span", both ends right. An evaluation appends three sums for SQuAD's own scores of texts
// (squad_score.h), "f1" and "exact_match": F1, exact matches, and questions.
[[nodiscard]] TaskPtr make_question_answering();

// As make_language_model(), with the fields of text_inputs(). For masked tokens, the other targets are kNoTarget.
[[nodiscard]] TaskPtr make_text_language_model(double label_smoothing = 0);

}  // namespace sluice::task
