// profile.json: what is written is read again, and what is not a profile is refused with the name of the field.
#include "profiler/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace sluice::profiler {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// All its numbers are one line, with more of each.
LayerBytes bytes_line(std::int64_t samples, std::uint64_t fixed, std::uint64_t per_sample) {
  const auto line = [&](std::uint64_t more) { return AffineBytes{fixed + more, per_sample}; };
  return {.samples = samples,
          .saved = line(0),
          .saves_input = samples > 1,
          .saves_output = samples > 4,
          .loss = line(1),
          .loss_working = line(2),
          .stash = line(3),
          .stashes_input = samples > 4,
          .stashes_output_gradient = samples > 1,
          .working = {line(4), line(5), line(6), line(7), line(8), line(9)},
          .transformed = fixed};
}

// Of so many samples, in the order of bytes_line().
std::vector<std::uint64_t> numbers_of(const LayerCost& cost, std::uint64_t samples) {
  const WorkingBytes& working = cost.working;
  std::vector<std::uint64_t> numbers;
  for (const AffineBytes& bytes :
       {cost.saved_bytes, cost.loss_bytes, cost.loss_working, cost.stash_bytes, working.forward, working.backward,
        working.input_gradient, working.weight_gradient, working.held_backward, working.held_input_gradient})
    numbers.push_back(bytes.at(samples));
  return numbers;
}

// More by one each.
std::vector<std::uint64_t> from(std::uint64_t first) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 10; ++i) numbers.push_back(first + i);
  return numbers;
}

MeasuredLayer example_layer() {
  MeasuredLayer layer;
  layer.name = "layer1.0";
  layer.puts_off_weights = true;
  layer.cost = {.forward = {1e-5, 0.1 + 0.2, 0.01},
                .input_gradient = {2e-5, 3e-7, 0.02},
                .weight_gradient = {0, 1.0 / 3, 0},
                .backward = {2e-5, 2e-4, 0.03},
                .first_forward_s = 1e-3,
                .first_backward_s = 2e-3,
                .slowdown = 1.25,
                .input_bytes = 2048,
                .output_bytes = 4096,
                .saved_bytes = {128, 12'288},
                .saves_input = true,
                .saves_output = false,
                .loss_bytes = {1, 40},
                .loss_working = {7, 80},
                .stash_bytes = {2, 50},
                .stashes_input = true,
                .stashes_output_gradient = true,
                .working = {{3, 60}, {4, 70}, {5, 80}, {6, 90}, {7, 100}, {8, 110}},
                .transformed_bytes = 3000,
                .parameter_bytes = 1000,
                .buffer_bytes = 64,
                .gradient_bytes = 1000,
                .optimizer_bytes = 2000};
  layer.times = {{1, 1e-4, 2e-4, 3e-4, 4.5e-4}, {16, 1e-3, 2e-3, 3e-3, 4.5e-3}};
  layer.times.push_back({.samples = 32,
                         .forward_s = 4e-3,
                         .input_gradient_s = 5e-3,
                         .weight_gradient_s = 6e-3,
                         .backward_s = 11e-3,
                         .timed_by = kTimedByCupti,
                         .gpu = GpuTimes{{5e-3, 1e-5, 4e-3}, {6e-3, 2e-5, 5e-3}, {7e-3, 3e-5, std::nullopt}, true}});
  layer.bytes = {bytes_line(1, 100, 10), bytes_line(4, 50, 20), bytes_line(16, 1000, 5), bytes_line(32, 30, 60)};
  return layer;
}

LayerProfile example() {
  LayerProfile profile;
  profile.fingerprint = {.cpu = "a \"CPU\"",
                         .cores = 2,
                         .threads_per_device = 1,
                         .instruction_set = "avx2",
                         .memory_bytes = 1ULL << 40,
                         .gpus = {"one", "two"},
                         .device = "cpu:0",
                         .sluice = "1.0",
                         .libtorch = "2.11.0",
                         .precision = "fp32",
                         .winograd = "4x4",
                         .optimizer = "adamw",
                         .batch_norm = "micro",
                         .model = {.name = "vit",
                                   .size = "nano",
                                   .stem = "cifar",
                                   .classes = 10,
                                   .channels = 3,
                                   .image_size = 32,
                                   .patch_size = 4,
                                   .dropout = 0.1}};
  profile.micro_batch = 16;
  profile.contenders = 2;
  profile.layers.push_back(example_layer());
  profile.stage_links = {{0, 1, "cpu:0", "cpu:1", {1e-6, std::nullopt, 0}},
                         {1, 2, "cpu:1", "cuda:0", {1e-5, 1e10, 0.1}}};
  profile.all_reduces = {{2, 3, {1e-4, 1.25e7, 0.3}}, {2, 4, {2e-4, 1e7, 0.1}}};
  profile.update = AffineCost{1e-6, 2e-10, 0.05};
  profile.update_together = AffineCost{2e-6, 3e-10, 0.04};
  profile.load = LoadCost{3e-4, 2e-4};
  profile.step = {10, 0.5, 0.48, 0.45, 32.0, 0.4, 0.03, 0.02, 0.36, 0.32, 0.01, 0.005};
  profile.stage_memory = {{0, "cpu:0", 1000, 1001}};
  profile.device_memory = {{"cpu:0", 2000, 2002}};
  return profile;
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_profile(text, "p.json");
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
    return error.what();
  }
  return "nothing was refused";
}

// What reading says of the example after `change`.
std::string refusal_after(const std::function<void(ordered_json&)>& change) {
  ordered_json json = ordered_json::parse(to_json_text(example()));
  change(json);
  return refusal(json.dump());
}

TEST(LayerProfile, IsReadAsItWasWritten) {
  const std::string text = to_json_text(example());
  const LayerProfile read = parse_profile(text, "p.json");
  EXPECT_EQ(to_json_text(read), text) << "numbers keep all their bits";
  EXPECT_EQ(read.fingerprint, example().fingerprint);
  EXPECT_EQ(read.layers.at(0).times, example().layers.at(0).times);
  EXPECT_EQ(read.layers.at(0).cost.forward.b_s, 0.1 + 0.2);
  EXPECT_EQ(read.costs().at(0).saved_bytes, (AffineBytes{128, 12'288}));
  EXPECT_FALSE(read.stage_links.at(0).cost.bytes_per_s.has_value());
  EXPECT_EQ(read.stage_links.at(1).cost.bytes_per_s, 1e10);
  EXPECT_EQ(read.all_reduces.at(1).local_replicas, 4);
  EXPECT_EQ(read.load->cpu_s, 2e-4);
  EXPECT_EQ(read.update->b_s, 2e-10);
  EXPECT_EQ(read.step->steps, 10);
  EXPECT_EQ(read.step->predicted_update_s, 0.02);
}

TEST(LayerProfile, TimesAreScaledToThoseOfWholeSteps) {
  LayerProfile profile = example();
  ASSERT_DOUBLE_EQ(profile.compute_scale(), 0.36 / 0.32);
  const LayerCost alone = profile.layers.at(0).cost, scaled = profile.costs().at(0);
  for (const double samples : {0.5, 1.0, 7.0, 32.0, 100.0}) {
    EXPECT_NEAR(scaled.forward.at(samples), 1.125 * alone.forward.at(samples), 1e-12);
    EXPECT_NEAR(scaled.backward.at(samples), 1.125 * alone.backward.at(samples), 1e-12);
    EXPECT_NEAR(scaled.input_gradient.at(samples), 1.125 * alone.input_gradient.at(samples), 1e-12);
    EXPECT_NEAR(scaled.weight_gradient.at(samples), 1.125 * alone.weight_gradient.at(samples), 1e-12);
  }
  EXPECT_DOUBLE_EQ(scaled.first_forward_s, 1.125 * alone.first_forward_s);
  EXPECT_DOUBLE_EQ(scaled.first_backward_s, 1.125 * alone.first_backward_s);
  EXPECT_EQ(scaled.slowdown, alone.slowdown);
  profile.step.reset();
  EXPECT_EQ(profile.compute_scale(), 1);
}

TEST(LayerProfile, AnAllReduceIsThatOfTheReplicasOrTheNextMore) {
  LayerProfile profile;
  EXPECT_EQ(profile.all_reduce_of(1, 2), nullptr);
  profile.all_reduces = {{1, 2, {.latency_s = 2}}, {1, 8, {.latency_s = 8}}, {1, 4, {.latency_s = 4}}};
  const auto latency = [&](int replicas) { return profile.all_reduce_of(1, replicas)->latency_s; };
  EXPECT_EQ(latency(2), 2);
  EXPECT_EQ(latency(3), 4);
  EXPECT_EQ(latency(4), 4);
  EXPECT_EQ(latency(5), 8);
  EXPECT_EQ(latency(9), 8) << "the largest there is";
  EXPECT_EQ(profile.all_reduce_of(2, 2), nullptr) << "of a network nothing is known";
}

TEST(LayerProfile, TheBytesOfAMicroBatchAreThoseOfItsKernels) {
  const LayerProfile profile = parse_profile(to_json_text(example()), "p.json");
  const auto at = [&](std::int64_t samples) { return numbers_of(profile.costs_at(samples).at(0), samples); };
  EXPECT_EQ(at(1), from(100 + 10));
  EXPECT_EQ(at(2), from(50 + 20 * 2));
  EXPECT_EQ(at(4), from(50 + 20 * 4));
  EXPECT_EQ(at(5), from(1000 + 5 * 5));
  EXPECT_EQ(at(100), from(30 + 60 * 100)) << "the last line goes on";
  EXPECT_EQ(profile.costs_at(3).at(0).transformed_bytes, 50);
  EXPECT_FALSE(profile.costs_at(1).at(0).saves_input);
  EXPECT_TRUE(profile.costs_at(2).at(0).saves_input);
  EXPECT_FALSE(profile.costs_at(2).at(0).stashes_input);
  EXPECT_EQ(profile.costs_at(8).at(0).forward.a_s, profile.costs().at(0).forward.a_s) << "times stay";
}

TEST(LayerProfile, BetweenTwoSizesTheMostIsThatOfTheKernelsOfBoth) {
  const LayerProfile profile = parse_profile(to_json_text(example()), "p.json");
  const auto most = [&](std::int64_t samples) { return numbers_of(profile.most_at(samples).at(0), samples); };
  EXPECT_EQ(most(4), from(50 + 20 * 4)) << "as measured";
  EXPECT_EQ(most(3), from(1000 + 5 * 3)) << "the kernels of 5 samples and more";
  EXPECT_EQ(most(10), from(1000 + 5 * 10));
  EXPECT_EQ(most(20), from(30 + 60 * 20));
  EXPECT_EQ(profile.most_at(20).at(0).transformed_bytes, 1000);
  EXPECT_EQ(most(100), from(30 + 60 * 100));
}

TEST(LayerProfile, SizesOfBytesAscend) {
  EXPECT_THAT(refusal_after([](ordered_json& json) { json["layers"][0]["bytes"][2]["samples"] = 4; }),
              HasSubstr("layers[0].bytes[2].samples is no more than 4"));
}

TEST(LayerProfile, WhatIsNotThereIsNull) {
  LayerProfile profile = example();
  profile.all_reduces.clear();
  profile.load.reset();
  profile.step.reset();
  profile.stage_links.clear();
  const std::string text = to_json_text(profile);
  EXPECT_TRUE(ordered_json::parse(text).at("load").is_null());
  EXPECT_EQ(to_json_text(parse_profile(text, "p.json")), text);
}

TEST(LayerProfile, EveryFieldIsNeeded) {
  const ordered_json whole = ordered_json::parse(to_json_text(example())).flatten();
  int fields = 0;
  for (const auto& [pointer, value] : whole.items()) {
    ordered_json json = whole.unflatten();
    const ordered_json::json_pointer place(pointer);
    if (json.at(place.parent_pointer()).is_array() || place.back() == "timed_by") continue;
    json.at(place.parent_pointer()).erase(place.back());
    EXPECT_NE(refusal(json.dump()), "nothing was refused") << pointer;
    ++fields;
  }
  EXPECT_GT(fields, 60);
}

TEST(LayerProfile, FilesWithoutWhatCameLaterAreRead) {
  ordered_json json = ordered_json::parse(to_json_text(example()));
  for (auto& times : json["layers"][0]["times"]) {
    times.erase("timed_by");
    times.erase("gpu");
  }
  const LayerProfile read = parse_profile(json.dump(), "p.json");
  for (const LayerTimes& times : read.layers.at(0).times) {
    EXPECT_EQ(times.timed_by, kTimedByClock);
    EXPECT_FALSE(times.gpu.has_value());
  }
}

TEST(LayerProfile, TimesOfAClockSayNothingOfAGpu) {
  const ordered_json times = ordered_json::parse(to_json_text(example())).at("layers").at(0).at("times");
  EXPECT_FALSE(times.at(0).contains("gpu"));
  EXPECT_EQ(times.at(0).at("timed_by"), "clock");
  EXPECT_EQ(times.at(2).at("timed_by"), "cupti");
  EXPECT_EQ(times.at(2).at("gpu").at("forward").at("kernels_s"), 4e-3);
  EXPECT_TRUE(times.at(2).at("gpu").at("weight_gradient").at("kernels_s").is_null());
  EXPECT_EQ(times.at(2).at("gpu").at("launch_bound"), true);
}

// As measured at the sizes of `times`, in between by straight lines, beyond them by the line's slope.
TEST(LayerProfile, CostsGoThroughWhatWasMeasured) {
  const LayerCost cost = parse_profile(to_json_text(example()), "p.json").layers.at(0).cost;
  const SizedCost& forward = cost.forward;
  EXPECT_DOUBLE_EQ(forward.at(1), 1e-4);
  EXPECT_DOUBLE_EQ(forward.at(16), 1e-3);
  EXPECT_DOUBLE_EQ(forward.at(24), 2.5e-3);
  EXPECT_DOUBLE_EQ(forward.at(34), 4e-3 + 2 * (0.1 + 0.2));
  EXPECT_DOUBLE_EQ(forward.at(0), 1e-5) << "the line's own constant";
  EXPECT_DOUBLE_EQ(cost.backward_seconds(16), 4.5e-3) << "and not the sum of its halves";
}

TEST(LayerProfile, UnknownFieldsArePassedOver) {
  EXPECT_EQ(refusal_after([](auto& json) { json["layers"][0]["color"] = "red"; }), "nothing was refused");
}

TEST(LayerProfile, RefusalsNameFileAndField) {
  const std::vector<std::pair<std::function<void(ordered_json&)>, std::string>> cases{
      {[](auto& j) { j["layers"][0]["forward"]["a_s"] = -1; }, "p.json: layers[0].forward.a_s is -1"},
      {[](auto& j) { j["layers"][0]["forward"]["a_s"] = "fast"; }, "layers[0].forward.a_s is \"fast\""},
      {[](auto& j) { j["layers"][0]["output_bytes"] = 1.5; }, "layers[0].output_bytes is 1.5"},
      {[](auto& j) { j["layers"][0]["output_bytes"] = -4; }, "layers[0].output_bytes is -4"},
      {[](auto& j) { j["layers"][0]["saves_input"] = 1; }, "layers[0].saves_input is 1"},
      {[](auto& j) { j["layers"][0]["name"] = nullptr; }, "layers[0].name is null"},
      {[](auto& j) { j["layers"][0]["times"][1].erase("samples"); }, "layers[0].times[1].samples is missing"},
      {[](auto& j) { j["layers"][0]["times"][1]["samples"] = 0; }, "layers[0].times[1].samples is 0"},
      {[](auto& j) { j["layers"][0]["times"][1]["samples"] = 1; },
       "layers[0].times[1].samples is no more than the one"},
      {[](auto& j) { j["contenders"] = 0; }, "contenders is 0"},
      {[](auto& j) { j["layers"][0]["times"][0]["timed_by"] = "sun"; }, "layers[0].times[0].timed_by is \"sun\""},
      {[](auto& j) { j["layers"][0]["times"][2]["gpu"] = 3; }, "layers[0].times[2].gpu should be an object"},
      {[](auto& j) { j["layers"] = ordered_json::array(); }, "layers is empty"},
      {[](auto& j) { j["layers"] = 3; }, "layers should be a list"},
      {[](auto& j) { j["step"] = 3; }, "step should be an object"},
      {[](auto& j) { j["micro_batch"] = 0; }, "micro_batch is 0"},
      {[](auto& j) { j["fingerprint"]["cores"] = 1e10; }, "fingerprint.cores is 1"},
      {[](auto& j) { j["fingerprint"]["cores"] = 9'999'999'999; }, "fingerprint.cores is 9999999999"},
      {[](auto& j) { j["fingerprint"]["cores"] = 4; }, "fingerprint_hash"},
      {[](auto& j) { j["stage_links"][1]["bytes_per_s"] = 0; }, "stage_links[1].bytes_per_s is 0"},
      {[](auto& j) { j["all_reduces"][1]["bytes_per_s"] = 0; }, "all_reduces[1].bytes_per_s is 0"},
      {[](auto& j) { j["schema_version"] = 5; }, "schema_version is 5, but this version of sluice reads 8"},
      {[](auto& j) { j["kind"] = "plan"; }, "p.json is no layer profile"},
  };
  for (const auto& [change, part] : cases) EXPECT_THAT(refusal_after(change), HasSubstr(part));
  EXPECT_THAT(refusal("{\"kind\": "), HasSubstr("p.json is no JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("p.json"));
  EXPECT_THAT(refusal(""), HasSubstr("p.json is no JSON"));
}

TEST(LayerProfile, NoCutOfTheTextIsTaken) {
  const std::string text = to_json_text(example());
  const std::size_t last_brace = text.rfind('}');
  for (std::size_t length = 0; length < last_brace; length += 7)
    EXPECT_NE(refusal(text.substr(0, length)), "nothing was refused") << length;
}

TEST(ReadProfile, NamesAFileThatCannotBeRead) {
  for (const char* file : {"no/such/profile.json", "/"}) {
    try {
      (void)read_profile(file);
      ADD_FAILURE() << file;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(file));
    }
  }
}

TEST(ReadProfile, ReadsAFile) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "layer_profile_test.json";
  std::ofstream(file) << to_json_text(example());
  EXPECT_EQ(to_json_text(read_profile(file)), to_json_text(example()));
  std::filesystem::remove(file);
}

// What was measured before there was a choice stays of use: nothing says so of the usual one.
TEST(Fingerprint, SaysNothingOfTheUsualWinograd) {
  Fingerprint usual = example().fingerprint;
  usual.winograd.reset();
  EXPECT_FALSE(to_json(usual).contains("winograd"));
  EXPECT_EQ(differences(usual, example().fingerprint), std::vector<std::string>{"winograd"});
  EXPECT_EQ(differences(example().fingerprint, usual), std::vector<std::string>{"winograd"});
  EXPECT_TRUE(differences(usual, usual).empty());
}

TEST(Fingerprint, EveryFieldChangesTheHash) {
  const Fingerprint original = example().fingerprint;
  EXPECT_TRUE(differences(original, original).empty());
  EXPECT_EQ(short_hash(original).size(), 16U);
  const std::vector<std::pair<std::string, std::function<void(Fingerprint&)>>> changes{
      {"cpu", [](auto& f) { f.cpu += "x"; }},
      {"cores", [](auto& f) { ++f.cores; }},
      {"threads_per_device", [](auto& f) { ++f.threads_per_device; }},
      {"instruction_set", [](auto& f) { f.instruction_set = "avx512"; }},
      {"memory_bytes", [](auto& f) { ++f.memory_bytes; }},
      {"gpus", [](auto& f) { f.gpus.pop_back(); }},
      {"device", [](auto& f) { f.device = "cuda:0"; }},
      {"sluice", [](auto& f) { f.sluice += "x"; }},
      {"libtorch", [](auto& f) { f.libtorch += "x"; }},
      {"precision", [](auto& f) { f.precision = "fp64"; }},
      {"winograd", [](auto& f) { f.winograd = "none"; }},
      {"optimizer", [](auto& f) { f.optimizer = "sgd"; }},
      {"batch_norm", [](auto& f) { f.batch_norm = "deferred"; }},
      {"model", [](auto& f) { f.model.name = "mlp"; }},
      {"model_size", [](auto& f) { f.model.size = "tiny"; }},
      {"stem", [](auto& f) { f.model.stem = "imagenet"; }},
      {"classes", [](auto& f) { ++f.model.classes; }},
      {"channels", [](auto& f) { ++f.model.channels; }},
      {"image_size", [](auto& f) { ++f.model.image_size; }},
      {"vocabulary", [](auto& f) { ++f.model.vocabulary; }},
      {"context", [](auto& f) { ++f.model.context; }},
      {"patch_size", [](auto& f) { ++f.model.patch_size; }},
      {"dropout", [](auto& f) { f.model.dropout = 0.2; }},
      {"stochastic_depth", [](auto& f) { f.model.stochastic_depth = 0.2; }},
      {"label_smoothing", [](auto& f) { f.label_smoothing = 0.1; }},
      {"deterministic", [](auto& f) { f.deterministic = true; }},
  };
  EXPECT_EQ(changes.size(), to_json(original).size()) << "one change for each field";
  for (const auto& [name, change] : changes) {
    Fingerprint changed = original;
    change(changed);
    EXPECT_EQ(differences(original, changed), std::vector<std::string>{name});
    EXPECT_NE(short_hash(original), short_hash(changed)) << name;
  }
}

}  // namespace
}  // namespace sluice::profiler
