// Parity of text models, whose borders are several tensors: masks, types and positions of padded and packed texts.
#include <utility>

#include "engine/step_equals.h"

namespace sluice::engine::test {
namespace {

// Rows of 1 to 6 tokens with padding, or of two documents; types and positions are given.
pipeline::MicroBatch make_text_batch(const models::ModelOptions& model, std::int64_t samples, bool is_packed) {
  pipeline::MicroBatch batch = make_token_batch(samples);
  const at::Tensor tokens = batch.inputs[0], rows = at::arange(samples).unsqueeze(1), columns = at::arange(6);
  const at::Tensor begin = 1 + rows.remainder(5), is_second = columns.ge(begin);
  const at::Tensor mask = is_packed ? 1 + is_second.to(at::kLong) : columns.le(rows.remainder(6)).to(at::kLong);
  const at::Tensor positions = columns - is_second * begin;
  batch.inputs = {tokens, mask, tokens.remainder(2), is_packed ? positions : at::Tensor()};
  batch.targets[0] = batch.targets[0].masked_fill(mask.eq(0), task::kNoTarget);
  if (model.task == "classify") batch.targets = {at::arange(samples).remainder(model.classes)};
  return batch;
}

class ParityOfText : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(ParityOfText, MasksTypesAndPositionsReachEveryStage) {
  models::ModelOptions model = small_model(GetParam().first, /*dropout=*/0.1);
  model.task = GetParam().second;
  model.classes = 3;
  ReferenceModel one_device(model);
  for (const bool is_packed : {false, true}) {
    const pipeline::MicroBatch batch = make_text_batch(model, 7, is_packed);
    const ReferenceStep reference = one_device.step({batch}, training_context());
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      for (const int devices : {1, 2, 3}) {
        for (const bool recompute : {false, true}) {
          Plan plan{.replicas = 1 + devices % 2, .schedule = schedule};
          plan.recompute.assign(devices, recompute);
          SCOPED_TRACE(concat(schedule, ", ", devices, " devices, recompute ", recompute, ", packed ", is_packed));
          Composition grid = make_grid(model, plan, devices);
          for (const int chunks : {3, 6}) expect_step_equals(grid, batch, chunks, reference);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ParityOfText,
                         testing::Values(std::pair{"bert", "mlm"}, std::pair{"bert", "classify"},
                                         std::pair{"llama", "lm"}, std::pair{"llama", "classify"},
                                         std::pair{"gpt2", "lm"}),
                         [](const auto& one) { return concat(one.param.first, "_", one.param.second); });

}  // namespace
}  // namespace sluice::engine::test
