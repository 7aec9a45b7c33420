// One case per way to be wrong, each with its message: it names the source, the key, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/reject_support.h"
#include "core/error.h"

namespace sluice::config {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string set_error(const std::string& set) { return error_of("", {set}); }

TEST(RejectSyntax, NamesFileLineAndColumn) {
  EXPECT_THAT(error_of("[train]\nlr = \n"), StartsWith("run.toml:2:"));
  EXPECT_THAT(error_of("[train]\nlr = \n"), HasSubstr("not valid TOML"));
  EXPECT_THAT(error_of("[train\n"), StartsWith("run.toml:1:"));
  EXPECT_THAT(error_of("[train]\nlr = 1\nlr = 2\n"), StartsWith("run.toml:3:"));
  EXPECT_THAT(error_of("[train]\nseed = 99999999999999999999\n"), StartsWith("run.toml:2:"));
}

// toml++ 3.3 takes it for granted that these never follow: they abort a debug build of it, and are undefined behaviour
// in a release build.
TEST(RejectSyntax, MisplacedCharactersDoNotReachTheLibrary) {
  EXPECT_EQ(error_of("[|x]\n"), "run.toml:1:2: not valid TOML: expected the name of a table");
  EXPECT_EQ(error_of("[train]\nlr = 1\n  [ \x06x]\n"), "run.toml:3:5: not valid TOML: expected the name of a table");
  EXPECT_THAT(error_of("[[=x]]"), StartsWith("run.toml:1:3: "));
  EXPECT_THAT(error_of("\xef\xbb\xbf[.x]"), StartsWith("run.toml:1:5: "));
  EXPECT_THAT(error_of("[train]\nlr\xcf\x90 = 1"), StartsWith("run.toml:2:3: "));
  EXPECT_THAT(error_of("[train]\nlr = \xc3\xa9"), StartsWith("run.toml:2:6: "));
  EXPECT_THAT(error_of("[train]\nlr = [0,}"), StartsWith("run.toml:2:9: "));
  EXPECT_THAT(error_of("[train]\nlr = 0E'\xc3\xa9'"), StartsWith("run.toml:2:8: "));
  EXPECT_THAT(error_of("[train]\nlr = 2['\xc3\xa9']"), StartsWith("run.toml:2:7: "));
  EXPECT_THAT(error_of("[train]\nlr = ]"), StartsWith("run.toml:2:6: "));
  EXPECT_THAT(error_of("[train]\nlr = { a = ] }"), StartsWith("run.toml:2:12: "));
  EXPECT_THAT(error_of("", {"train.lr=1 \xc3\xa9"}),
              HasSubstr("not valid TOML: unexpected character outside of ASCII;"));
  EXPECT_EQ(error_of("[model]\nname = \"\"\"a\"\"\"\n"),
            R"(run.toml:2:8: not valid TOML: multi-line strings are not supported; write one line with \n)");
}

TEST(RejectSyntax, BareWordsAreNoValues) {
  EXPECT_EQ(error_of("[train]\noptimizer = adam\n"),
            "run.toml:2:13: not valid TOML: 'adam' is neither a number nor true or false; a string needs quotes");
  EXPECT_THAT(error_of("[train]\nlr = 2024-01-01\n"), HasSubstr("2:6: not valid TOML: '2024-01-01' is neither"));
  EXPECT_THAT(error_of("[train]\nlr = 5-------Ne 1\n"), HasSubstr("2:6: not valid TOML: '5-------Ne' is neither"));
  EXPECT_THAT(error_of("[pipeline]\npartition = [1,\n two]\n"), HasSubstr("3:2: not valid TOML: 'two' is neither"));
  EXPECT_THAT(error_of("train = { lr = 1, steps = x }\n"), HasSubstr("1:27: not valid TOML: 'x' is neither"));
  for (const auto* number : {"1e-3", "+1", "0x10", "1_000.5", "1E+2"}) {
    EXPECT_EQ(error_of("[train]\nlr = " + std::string(number) + "\n"), "accepted") << number;
  }
}

TEST(RejectSyntax, AnythingMayStandInStringsAndComments) {
  EXPECT_EQ(error_of("# |\xc3\xa9\n[model]\nname = \"|\\\"\xc3\xa9[\" # $\nsize = '|\\'\n"), "accepted");
  EXPECT_EQ(error_of("[pipeline]\nstages = 2\npartition = [\n  3, # |\n  4,\n]\n"), "accepted");
  EXPECT_EQ(error_of("\xef\xbb\xbf[train]\nlr = 1\r\n"), "accepted");
  EXPECT_THAT(error_of("[model]\nname = \"open\n"), StartsWith("run.toml:2:"));
}

TEST(RejectUnknown, SuggestsTheNearestName) {
  EXPECT_EQ(error_of("[train]\nstep = 3\n"), "run.toml:2: unknown key 'train.step'; did you mean 'train.steps'?");
  EXPECT_EQ(error_of("\n[trainn]\n"), "run.toml:2: unknown table 'trainn'; did you mean 'train'?");
  EXPECT_EQ(error_of("[train]\nchunks = 3\n"),
            "run.toml:2: unknown key 'train.chunks'; did you mean 'pipeline.chunks'?");
  EXPECT_EQ(error_of("lr = 3\n"), "run.toml:1: unknown key 'lr'; did you mean 'train.lr'?");
  const std::vector<std::pair<std::string, std::string>> of_others{
      {"train.learning_rate", "train.lr"},        {"learning_rate", "train.lr"},
      {"train.batch_size", "train.global_batch"}, {"data.num_workers", "data.workers"},
      {"model.pretrained", "model.weights"},      {"train.steps_warmup", "train.warmup_steps"}};
  for (const auto& [word, key] : of_others)
    EXPECT_THAT(set_error(word + "=1"), HasSubstr("'; did you mean '" + key + "'?")) << word;
}

TEST(RejectUnknown, ListsWhatThereIsWhenNothingIsNear) {
  EXPECT_EQ(error_of("[log]\nverbosity = 3\n"),
            "run.toml:2: unknown key 'log.verbosity'; the keys of [log] are every, lines, digest_every, digest_layers, "
            "tensorboard, csv");
  EXPECT_EQ(
      error_of("[quantum]\nx = 1\n"),
      "run.toml:1: unknown table 'quantum'; the tables are device, model, data, train, pipeline, ps, freeze, replicas, "
      "checkpoint, profile, log");
  EXPECT_THAT(error_of("zzzzzzzz = 1\n"),
              HasSubstr("unknown key 'zzzzzzzz'; a key belongs to one of the tables device"));
}

TEST(RejectUnknown, TheFirstInTheFileIsReported) {
  EXPECT_THAT(error_of("[train]\nzz = 1\naa = 1\n"), HasSubstr("'train.zz'"));
}

TEST(RejectType, SaysWhatIsNeededWithAnExample) {
  EXPECT_EQ(error_of("[train]\nsteps = \"ten\"\n"),
            "run.toml:2: train.steps needs an integer, for example steps = 0; found the string \"ten\"");
  EXPECT_EQ(error_of("[train]\nsteps = 1.5\n"),
            "run.toml:2: train.steps needs an integer, for example steps = 0; found a number");
  EXPECT_EQ(error_of("[train]\nlr = true\n"),
            "run.toml:2: train.lr needs a number, for example lr = 0.01; found true or false");
  EXPECT_EQ(error_of("[model]\nname = 3\n"),
            "run.toml:2: model.name needs a string, for example name = \"resnet8\"; found an integer");
  EXPECT_EQ(error_of("[data]\nflip = 1\n"),
            "run.toml:2: data.flip needs true or false, for example flip = false; found an integer");
  EXPECT_EQ(
      error_of("[pipeline]\nchunks = \"many\"\n"),
      "run.toml:2: pipeline.chunks needs an integer or \"auto\", for example chunks = 1; found the string \"many\"");
  EXPECT_EQ(error_of("[pipeline]\npartition = 3\n"),
            "run.toml:2: pipeline.partition needs an array of integers or \"auto\", for example partition = [3, 4]; "
            "found an integer");
  EXPECT_EQ(error_of("[pipeline]\npartition = [3, \"x\"]\n"),
            "run.toml:2: pipeline.partition needs an array of integers or \"auto\", for example partition = [3, 4]; "
            "found an array of mixed or other values");
  EXPECT_EQ(error_of("[train]\nlr_decay_steps = 5\n"),
            "run.toml:2: train.lr_decay_steps needs an array of integers, for example lr_decay_steps = [1000, 2000]; "
            "found an integer");
  EXPECT_EQ(error_of("[device]\nlist = [1]\n"),
            "run.toml:2: device.list needs a string or an array of strings, for example list = [\"cpu:0\", \"cpu:1\"]; "
            "found an array of integers");
  EXPECT_THAT(error_of("[train.lr]\n"), EndsWith("found a table"));
  EXPECT_THAT(error_of("[[train.lr]]\n"), EndsWith("found an array of tables"));
  EXPECT_EQ(error_of("train = 3\n"),
            "run.toml:1: 'train' is a table; write [train] and its keys below; found an integer");
  EXPECT_THAT(error_of("[[train]]\n"), EndsWith("found an array of tables"));
}

TEST(RejectType, BytesNeedAUnitThatThereIs) {
  const std::string rest =
      " needs an integer or a string with a unit (B, KB to TB, KiB to TiB), for example memory_limit = \"512MiB\"; "
      "found ";
  EXPECT_EQ(error_of("[device]\nmemory_limit = \"5 XB\"\n"),
            "run.toml:2: device.memory_limit" + rest + "the string \"5 XB\"");
  EXPECT_EQ(set_error("device.memory_limit=lots"),
            "--set device.memory_limit=lots: device.memory_limit" + rest + "the string \"lots\"");
  EXPECT_EQ(error_of("[device]\nmemory_limit = 1.5\n"), "run.toml:2: device.memory_limit" + rest + "a number");
  EXPECT_THAT(set_error("device.memory_limit=2000TiB"), HasSubstr("\"2000TiB\" is out of range; it must be <= "));
  EXPECT_THAT(set_error("device.memory_limit=-1"), HasSubstr("-1 is out of range; it must be 0 to "));
  EXPECT_THAT(set_error("device.memory_limit=-5MiB"), HasSubstr("\"-5MiB\" is out of range; it must be 0 to "));
  EXPECT_THAT(set_error("device.memory_limit=99999999999TiB"), HasSubstr("\"99999999999TiB\" is out of range; it "));
}

TEST(RejectRange, SaysTheRangeAndTheValue) {
  EXPECT_EQ(error_of("[train]\nlr = -0.5\n"), "run.toml:2: train.lr = -0.5 is out of range; it must be > 0.0");
  EXPECT_EQ(error_of("[train]\nlr = 0\n"), "run.toml:2: train.lr = 0 is out of range; it must be > 0.0");
  EXPECT_THAT(error_of("[train]\nlr = inf\n"), HasSubstr("train.lr = inf is out of range"));
  EXPECT_THAT(error_of("[train]\nlr = nan\n"), HasSubstr("train.lr = nan is out of range"));
  EXPECT_EQ(error_of("[model]\ndropout = 1.0\n"),
            "run.toml:2: model.dropout = 1.0 is out of range; it must be >= -1.0 and < 1.0");
  EXPECT_EQ(error_of("[data]\nworkers = 257\n"), "run.toml:2: data.workers = 257 is out of range; it must be <= 256");
  EXPECT_EQ(error_of("[data]\nworkers = -1\n"), "run.toml:2: data.workers = -1 is out of range; it must be 0 to 256");
  EXPECT_EQ(error_of("[train]\nglobal_batch = 0\n"),
            "run.toml:2: train.global_batch = 0 is out of range; it must be >= 1");
  EXPECT_EQ(error_of("[train]\nsteps = 1000000000000\n"),
            "run.toml:2: train.steps = 1000000000000 is out of range; it must be <= 1000000000");
  EXPECT_THAT(error_of("[train]\nseed = -1\n"), HasSubstr("it must be 0 to 9223372036854775807"));
  EXPECT_EQ(error_of("[pipeline]\nchunks = 0\n"),
            "run.toml:2: pipeline.chunks = 0 is out of range; it must be 1 to 65536");
  EXPECT_EQ(error_of("[pipeline]\npartition = [3, 0]\n"),
            "run.toml:2: pipeline.partition = [3, 0] is out of range; it must be >= 1");
  EXPECT_EQ(error_of("[pipeline]\npartition = []\n"),
            "run.toml:2: pipeline.partition = [] is out of range; it must be \"auto\" or one integer per stage");
  EXPECT_THAT(error_of("[train]\nlr_decay = 1.5\n"), HasSubstr("it must be > 0.0 and <= 1.0"));
}

// They become milliseconds and whole bytes: larger ones would overflow, and buckets of 0 bytes hold nothing.
TEST(RejectRange, TimeoutsAndBucketsFitTheirUnits) {
  for (const auto* seconds : {"1000000.1", "1e300", "-1"}) {
    EXPECT_THAT(set_error("train.step_timeout_s=" + std::string(seconds)), HasSubstr("it must be >= 0.0 and <= "));
  }
  for (const auto* mebibytes : {"0", "65536.5", "1e300"}) {
    EXPECT_THAT(set_error("replicas.bucket_mb=" + std::string(mebibytes)),
                HasSubstr("it must be > 0.0 and <= 65536.0"));
  }
  for (const auto* set : {"train.step_timeout_s=0", "train.step_timeout_s=0.001", "train.step_timeout_s=1000000",
                          "replicas.bucket_mb=65536"}) {
    EXPECT_EQ(set_error(set), "accepted");
  }
}

// The system would read a path up to it.
TEST(RejectRange, ANulIsInNoString) {
  const std::string rest = " contains a NUL character (\\u0000); remove it";
  EXPECT_EQ(error_of("[data]\npath = \"/data\\u0000/x\"\n"), "run.toml:2: data.path = \"/data\\u0000/x\"" + rest);
  EXPECT_EQ(set_error("model.weights=\"a\\u0000\""),
            "--set model.weights=\"a\\u0000\": model.weights = \"a\\u0000\"" + rest);
  EXPECT_THAT(error_of("[model]\nname = \"resnet8\\U00000000\"\n"), EndsWith(rest));
  EXPECT_THAT(error_of("[device]\nlist = [\"cpu:0\", \"cpu:1\\u0000\"]\n"), EndsWith(rest));
  EXPECT_THAT(error_of("[train]\noptimizer = \"adam\\u0000\"\n"), EndsWith(rest));
  Config config;
  config.data.path = std::string("a\0b", 3);
  EXPECT_THROW(validate(config), ConfigError);
}

TEST(RejectRange, WordsAreListed) {
  EXPECT_EQ(error_of("[train]\noptimizer = \"adamm\"\n"),
            "run.toml:2: train.optimizer = \"adamm\" is unknown; it must be one of \"sgd\", \"momentum\", "
            "\"rmsprop\", \"adam\", \"adamw\", \"lamb\"; did you mean 'adam'?");
  EXPECT_EQ(error_of("[pipeline]\nschedule = \"zb-h3\"\n"),
            "run.toml:2: pipeline.schedule = \"zb-h3\" is unknown; it must be one of \"gpipe\", \"1f1b\", "
            "\"eager-1f1b\", \"interleaved\", \"looped-bfs\", \"zb-h1\", \"zb-h2\", \"zb-v\", \"dualpipe-v\"; "
            "did you mean 'zb-h1'?");
  EXPECT_EQ(error_of("[device]\nlist = \"tpu\"\n"),
            "run.toml:2: device.list = \"tpu\" is out of range; it must be \"auto\", \"cpu\", \"cuda\" or an array of "
            "names such as \"cpu:0\"");
  EXPECT_EQ(error_of("[device]\nlist = [\"cpu:0\", \"gpu:1\"]\n"),
            "run.toml:2: device.list lists \"gpu:1\"; a device name is cpu:N or cuda:N with N from 0 to 1023");
  for (const auto* name : {"cpu", "cpu:", "cpu:x", "cpu:1024", "cpu:99999999999", "cuda:-1", ":1", ""}) {
    EXPECT_THAT(error_of("[device]\nlist = [\"" + std::string(name) + "\"]\n"), HasSubstr("device.list lists")) << name;
  }
  EXPECT_THAT(error_of("[device]\nlist = []\n"), HasSubstr("device.list = [] is out of range"));
}

TEST(RejectSet, NamesTheSet) {
  EXPECT_EQ(set_error("train.lr=-1"), "--set train.lr=-1: train.lr = -1 is out of range; it must be > 0.0");
  EXPECT_EQ(set_error("train.step=1"), "--set train.step=1: unknown key 'train.step'; did you mean 'train.steps'?");
  EXPECT_EQ(set_error("train.lr"), "--set train.lr: expected key=value");
  EXPECT_EQ(set_error("train.lr="),
            "--set train.lr=: no value after '='; train.lr needs a number, for example lr = 0.01");
  EXPECT_EQ(set_error("train=1"), "--set train=1: 'train' is a table; set one of its keys");
  EXPECT_EQ(set_error("=1"),
            "--set =1: unknown key ''; a key belongs to one of the tables device, model, data, train, "
            "pipeline, ps, freeze, replicas, checkpoint, profile, log");
  EXPECT_THAT(set_error("train.lr=fast"),
              HasSubstr("needs a number, for example lr = 0.01; found the string \"fast\""));
  EXPECT_THAT(set_error("train.lr=0.1.2"), HasSubstr("not valid TOML"));
  EXPECT_THAT(set_error("pipeline.partition=[3,"), HasSubstr("not valid TOML"));
  EXPECT_THAT(
      set_error("pipeline.partition=1,2"),
      AllOf(HasSubstr("not valid TOML"),
            EndsWith("; pipeline.partition needs an array of integers or \"auto\", for example partition = [3, 4]")));
  EXPECT_THAT(set_error("train.lr=1\nmomentum=2"), HasSubstr("expected one TOML value"));
  EXPECT_THAT(set_error("model.name=\xff"), HasSubstr("not valid TOML"));
}

TEST(RejectFile, SaysWhatToDo) {
  const auto load_error = [](const char* path) -> std::string {
    try {
      (void)load(path);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(load_error("/nowhere/run.toml"),
            "/nowhere/run.toml: no such file; give the path of a configuration, such as one in configs/");
  EXPECT_EQ(load_error("/"), "/: is a folder; give the path of a configuration file in it");
  EXPECT_EQ(load_error("/dev/zero"), "/dev/zero: larger than 1.0 MiB, so it is not a configuration file");
}

TEST(Fuzz, AnyTextGivesAConfigOrAOneLineError) {
  const std::string seed = to_toml(Config{});
  const std::string alphabet = "[]{}=\"'\\.,#\n 0129-+eEinfautos_\xff";
  std::mt19937 random(5);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  int accepted = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = seed;
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      switch (below(4)) {
        case 0: text.erase(below(text.size()), 1 + below(12)); break;
        case 1: text.insert(below(text.size()), 1, alphabet[below(alphabet.size())]); break;
        case 2: text[below(text.size())] = static_cast<char>(below(256)); break;
        default: text.insert(below(text.size()), text.substr(below(text.size()), below(60))); break;
      }
    }
    const std::string verdict = error_of(text);
    EXPECT_THAT(verdict, AllOf(Not(HasSubstr("\n")), Not(::testing::IsEmpty())));
    accepted += static_cast<int>(verdict == "accepted");
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 2900);
}

}  // namespace
}  // namespace sluice::config
