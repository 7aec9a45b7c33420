#include "train/setup/judge.h"

#include <algorithm>
#include <map>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "data/squad_dataset.h"
#include "task/answers.h"
#include "task/squad_score.h"

namespace sluice::train {
namespace {

std::vector<double> column(const at::Tensor& logits, std::int64_t which) {
  const at::Tensor own = logits.select(1, which).to(at::kDouble).contiguous();
  const auto* data = own.const_data_ptr<double>();
  return {data, data + own.numel()};
}

class QuestionJudge final : public Judge {
 public:
  QuestionJudge(const data::Dataset& windows, const data::QuestionSet& questions, at::ScalarType type)
      : windows_(windows),
        questions_(questions),
        logits_(at::zeros({windows.size(), windows.info().context, 2}, type)) {}

  void add(const at::Tensor& sample_ids, const at::Tensor& outputs) override {
    const auto* ids = sample_ids.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < sample_ids.size(0); ++i)
      logits_[ids[i]].narrow(0, 0, outputs.size(1)).copy_(outputs[i]);
  }

  [[nodiscard]] std::vector<double> finish(comm::ReplicaSync& sync) override {
    if (sync.processes() > 1) sync.sum(logits_);  // each process has zeros for the samples of others
    const data::SquadFile& file = questions_.file();
    std::map<std::int64_t, task::AnswerSearch> searches;  // by question
    for (std::int64_t i = 0; i < windows_.size(); ++i) take_window(i, searches);
    task::SquadCount count(file.has_impossible ? task::SquadVersion::k2 : task::SquadVersion::k1);
    for (const auto& [number, search] : searches) {
      const data::Question& question = file.questions[number];
      const std::string answer = search.text(file.contexts[question.context]);
      count.add(answer, question.answers);
      predictions_[question.id] = answer;
    }
    const task::SquadScores scores = count.all();
    const auto questions = static_cast<double>(scores.questions);
    return {scores.f1 / 100 * questions, scores.exact_match / 100 * questions, questions};
  }

  [[nodiscard]] const nlohmann::ordered_json& predictions() const override { return predictions_; }

 private:
  void take_window(std::int64_t sample, std::map<std::int64_t, task::AnswerSearch>& searches) const {
    const data::QuestionWindow window = questions_.window(windows_.sample_in_whole(sample));
    const auto tokens = static_cast<std::int64_t>(window.first_context + window.offsets.size());
    const at::Tensor logits = logits_[sample].narrow(0, 0, tokens);
    const std::vector<double> starts = column(logits, 0), ends = column(logits, 1);
    const task::AnswerOptions options{.may_have_none = questions_.file().has_impossible};
    const auto search = searches.try_emplace(window.question, options).first;
    search->second.add({starts, ends, window.first_context, window.offsets});
  }

  const data::Dataset& windows_;
  const data::QuestionSet& questions_;
  at::Tensor logits_;  // [window, token, 2]; zeros for windows without outputs
  nlohmann::ordered_json predictions_ = nlohmann::ordered_json::object();
};

}  // namespace

std::unique_ptr<Judge> make_judge(const Setup& setup) {
  const data::QuestionSet* const questions = setup.test_set->question_set();
  if (questions == nullptr) return nullptr;
  return std::make_unique<QuestionJudge>(*setup.test_set, *questions, setup.model.dtype);
}

}  // namespace sluice::train
