// profile.json: what is written is read again, and what is not a profile is refused with the name of the field.
#include "profiler/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "example_profile.h"

namespace sluice::profiler {
namespace {

using nlohmann::ordered_json;
using test::example;
using testing::HasSubstr;

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
  EXPECT_EQ(read.server->cost.pull.bytes_per_s, 3e9);
  EXPECT_EQ(read.server->cost.merge.b_s, 5e-10);
  EXPECT_EQ(read.server->pull_compression, "topk");
  EXPECT_EQ(read.step->steps, 10);
  EXPECT_EQ(read.step->predicted_update_s, 0.02);
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
    const ordered_json::json_pointer slot(pointer);
    const bool came_later = slot.back() == "timed_by" || pointer.find("working_once_bytes") != std::string::npos;
    if (json.at(slot.parent_pointer()).is_array() || came_later || slot.back() == "fingerprint_hash") continue;
    json.at(slot.parent_pointer()).erase(slot.back());
    EXPECT_NE(refusal(json.dump()), "nothing was refused") << pointer;
    ++fields;
  }
  EXPECT_GT(fields, 60);
}

TEST(LayerProfile, AFileWrittenByHandMayLeaveOutTheHash) {
  ordered_json json = ordered_json::parse(to_json_text(example()));
  json.erase("fingerprint_hash");
  json["fingerprint"]["cores"] = 77;
  EXPECT_EQ(parse_profile(json.dump(), "p.json").fingerprint.cores, 77);
}

TEST(LayerProfile, FilesWithoutWhatCameLaterAreRead) {
  ordered_json json = ordered_json::parse(to_json_text(example()));
  for (auto& times : json["layers"][0]["times"]) {
    times.erase("timed_by");
    times.erase("gpu");
  }
  json.erase("server");
  const LayerProfile read = parse_profile(json.dump(), "p.json");
  for (const LayerTimes& times : read.layers.at(0).times) {
    EXPECT_EQ(times.timed_by, kTimedByClock);
    EXPECT_FALSE(times.gpu.has_value());
  }
  EXPECT_FALSE(read.server.has_value());
  EXPECT_FALSE(ordered_json::parse(to_json_text(read)).contains("server"));
}

TEST(LayerProfile, DropoutBelowZeroIsThatOfModelConfig) {
  LayerProfile profile = example();
  profile.fingerprint.model.dropout = -1;
  EXPECT_EQ(parse_profile(to_json_text(profile), "p.json").fingerprint.model.dropout, -1);
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
  EXPECT_DOUBLE_EQ(cost.input_gradient.at(16), 2e-3);
  EXPECT_DOUBLE_EQ(cost.weight_gradient.at(16), 3e-3);
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
      {[](auto& j) { j["layers"][0]["slowdown"] = 0.5; }, "layers[0].slowdown is less than 1"},
      {[](auto& j) { j["fingerprint"]["cores"] = 0; }, "fingerprint.cores is 0"},
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
      {[](auto& j) { j["server"]["push"]["bytes_per_s"] = 0; }, "server.push.bytes_per_s is 0"},
      {[](auto& j) { j["server"]["pull"]["bytes_per_s"] = 0.5; }, "server.pull.bytes_per_s is 0.5"},
      {[](auto& j) { j["server"] = 3; }, "server should be an object"},
      {[](auto& j) { j["server"].erase("merge"); }, "server.merge is missing"},
      {[](auto& j) { j["schema_version"] = 5; }, "schema_version is 5, but this version of sluice reads 8"},
      {[](auto& j) { j["kind"] = "plan"; }, "p.json is not a layer profile"},
  };
  for (const auto& [change, part] : cases) EXPECT_THAT(refusal_after(change), HasSubstr(part));
  EXPECT_THAT(refusal("{\"kind\": "), HasSubstr("p.json is not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("p.json"));
  EXPECT_THAT(refusal(""), HasSubstr("p.json is not JSON"));
}

// Each finite, but no sum with them, or product of them, would say anything.
TEST(LayerProfile, AbsurdNumbersAreRefused) {
  const std::vector<std::pair<std::function<void(ordered_json&)>, std::string>> cases{
      {[](auto& j) { j["layers"][0]["times"][0]["forward_s"] = -1e-3; }, "layers[0].times[0].forward_s is -0.001"},
      {[](auto& j) { j["layers"][0]["times"][0]["forward_s"] = 1e300; }, "layers[0].times[0].forward_s is 1e+300"},
      {[](auto& j) { j["layers"][0]["backward"]["b_s"] = 1e10; }, "layers[0].backward.b_s is 10000000000.0"},
      {[](auto& j) { j["layers"][0]["slowdown"] = 1e12; }, "layers[0].slowdown is 1000000000000.0"},
      {[](auto& j) { j["layers"][0]["output_bytes"] = (std::uint64_t{1} << 60) + 1; },
       "layers[0].output_bytes is 1152921504606846977"},
      {[](auto& j) { j["layers"][0]["working_bytes"]["forward"]["per_sample"] = std::uint64_t{1} << 61; },
       "layers[0].working_bytes.forward.per_sample is 2305843009213693952"},
      {[](auto& j) { j["micro_batch"] = std::int64_t{1} << 62; }, "micro_batch is 4611686018427387904"},
      {[](auto& j) { j["stage_links"][0]["latency_s"] = 1e300; }, "stage_links[0].latency_s is 1e+300"},
      {[](auto& j) { j["all_reduces"][0]["bytes_per_s"] = 1e-300; }, "all_reduces[0].bytes_per_s is 1e-300"},
      {[](auto& j) { j["load"]["sample_s"] = 1e300; }, "load.sample_s is 1e+300"},
      {[](auto& j) { j["server"]["update"]["a_s"] = 1e300; }, "server.update.a_s is 1e+300"},
      {[](auto& j) { j["server"]["push"]["latency_s"] = -1e-3; }, "server.push.latency_s is -0.001"},
      {[](auto& j) { j["step"]["other_s"] = 1e300; }, "step.other_s is 1e+300"},
      {[](auto& j) { j["step"]["compute_s"] = 1, j["step"]["predicted_compute_s"] = 1e-300; },
       "step.compute_s is more than 1e+06 times"},
  };
  for (const auto& [change, part] : cases) EXPECT_THAT(refusal_after(change), HasSubstr(part));
  EXPECT_EQ(refusal_after([](auto& j) { j["all_reduces"][0]["bytes_per_s"] = 1e300; }), "nothing was refused")
      << "an endless link";
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

TEST(IsProfile, SaysWhatAFileCallsItself) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "is_profile_test.json";
  const auto is = [&](const std::string& text) {
    std::ofstream(file) << text;
    return is_profile(file);
  };
  ordered_json older = ordered_json::parse(to_json_text(example()));
  older["schema_version"] = 1;
  EXPECT_TRUE(is(to_json_text(example())));
  EXPECT_TRUE(is(older.dump()));
  for (const char* text : {"", "notes", "[]", "3", "{}", R"({"kind": "plan"})", R"({"kind": 3})"})
    EXPECT_FALSE(is(text)) << text;
  std::filesystem::remove(file);
  EXPECT_FALSE(is_profile(file));
  EXPECT_FALSE(is_profile(testing::TempDir()));
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
  Fingerprint original = example().fingerprint;
  for (const char* of_text : {"inputs", "config", "task", "file", "lora_rank"})
    EXPECT_FALSE(to_json(original).contains(of_text)) << "profiles of earlier versions lack it";
  original.inputs = {{"types"}};
  original.model.config = "{}", original.model.task = "qa", original.model.file = "0f";
  original.model.lora_rank = 2, original.model.lora_alpha = 3, original.model.lora_dropout = 0.2;
  original.model.lora_targets = {"value"};
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
      {"tf32", [](auto& f) { f.tf32 = false; }},
      {"optimizer", [](auto& f) { f.optimizer = "sgd"; }},
      {"batch_norm", [](auto& f) { f.batch_norm = "deferred"; }},
      {"model", [](auto& f) { f.model.name = "mlp"; }},
      {"model_size", [](auto& f) { f.model.size = "tiny"; }},
      {"inputs", [](auto& f) { f.inputs = {{"mask"}}; }},
      {"config", [](auto& f) { f.model.config = "config.json"; }},
      {"task", [](auto& f) { f.model.task = "lm"; }},
      {"file", [](auto& f) { f.model.file = "1e"; }},
      {"lora_rank", [](auto& f) { f.model.lora_rank = 8; }},
      {"lora_alpha", [](auto& f) { f.model.lora_alpha = 16; }},
      {"lora_dropout", [](auto& f) { f.model.lora_dropout = 0.1; }},
      {"lora_targets", [](auto& f) { f.model.lora_targets = {"query"}; }},
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
