#include "engine/parameter_groups.h"

#include <gtest/gtest.h>

#include "models/model.h"

namespace sluice::engine {
namespace {

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

// By public names: 1: of a normalisation, 2: another bias, 3: a position, 0: none of these.
int role_of(const std::string& name) {
  if (has(name, "layernorm")) return 1;
  if (name.ends_with(".bias")) return 2;
  return has(name, "cls_token") || has(name, "position_embeddings") ? 3 : 0;
}

// One range for each parameter of a vision transformer, which has parameters of every role.
TEST(UpdateRanges, FollowTheRolesOneByOne) {
  models::ModelOptions options;
  options.name = "vit";
  options.size = "nano";
  options.classes = 10;
  options.channels = 3;
  options.image_size = 32;
  options.patch_size = 8;
  const auto layers = models::make_model(options).layers;
  const pipeline::FlatParameters parameters(layers, ParamId{0}, at::kCPU, nullptr);
  for (const int left_out : {0, 1, 2, 3}) {
    const auto ranges = update_ranges(parameters, {.decays_norms = left_out != 1,
                                                   .decays_biases = left_out != 2,
                                                   .decays_positions = left_out != 3,
                                                   .classifier_lr_factor = 7});
    ASSERT_EQ(ranges.size(), parameters.entries().size());
    int without_decay = 0, of_head = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const auto& entry = parameters.entries()[i];
      const std::string& name = entry.name;
      EXPECT_EQ(ranges[i].begin, entry.begin);
      EXPECT_GE(ranges[i].end, entry.begin + entry.numel);
      EXPECT_EQ(ranges[i].end % 16, 0) << "whole vectors, so that rounding does not depend on what follows";
      EXPECT_EQ(ranges[i].end, i + 1 < ranges.size() ? ranges[i + 1].begin : parameters.updated_elements());
      EXPECT_EQ(ranges[i].decays, left_out == 0 || role_of(name) != left_out) << name;
      EXPECT_EQ(ranges[i].lr_factor, has(name, "classifier") ? 7 : 1) << name;
      without_decay += ranges[i].decays ? 0 : 1;
      of_head += ranges[i].lr_factor == 7 ? 1 : 0;
    }
    EXPECT_EQ(without_decay > 0, left_out > 0);
    EXPECT_EQ(of_head, 2);
  }
}

}  // namespace
}  // namespace sluice::engine
