#include "storage/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string with_length(const std::string& json) {
  const std::uint64_t length = json.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + json;
}

// All dtypes, with values that a conversion through another type would lose.
TensorMap one_of_each() {
  const auto ramp = at::arange(6, at::kDouble).reshape({2, 3}) / 7.0;
  return {{"f64", ramp},
          {"f32", ramp.to(at::kFloat)},
          {"f16", ramp.to(at::kHalf)},
          {"bf16", ramp.to(at::kBFloat16)},
          {"i64", at::full({2}, (std::int64_t{1} << 53) + 1, at::kLong)},
          {"i32", at::full({3}, -2147483647, at::kInt)},
          {"i16", at::full({1}, -32767, at::kShort)},
          {"i8", at::full({5}, -127, at::kChar)},
          {"u8", at::full({5}, 255, at::kByte)},
          {"bool", at::arange(3, at::kInt).remainder(2).to(at::kBool)}};
}

void expect_equal(const TensorMap& actual, const TensorMap& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_EQ(actual.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(actual.at(name).equal(tensor)) << name;
  }
}

TEST(Safetensors, EveryDtypeRoundTrips) {
  const test::TempDir dir;
  write_safetensors(dir / "a.safetensors", one_of_each());
  const auto file = read_safetensors(dir / "a.safetensors");
  expect_equal(file.tensors, one_of_each());
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(Safetensors, ScalarsEmptyTensorsAndNoTensorsRoundTrip) {
  const test::TempDir dir;
  const TensorMap tensors{{"scalar", at::full({}, 2.5)}, {"none", at::empty({0})}, {"none_2d", at::empty({3, 0, 2})}};
  write_safetensors(dir / "a", tensors, {{"key", "value \"\n ü"}, {"b", ""}});
  const auto file = read_safetensors(dir / "a");
  expect_equal(file.tensors, tensors);
  EXPECT_EQ(file.metadata.at("key"), "value \"\n ü");
  write_safetensors(dir / "b", {}, {});
  EXPECT_TRUE(read_safetensors(dir / "b").tensors.empty());
}

TEST(Safetensors, AnyMemoryLayoutIsWrittenRowMajor) {
  const test::TempDir dir;
  const auto image = at::arange(2 * 3 * 4 * 5, at::kFloat).reshape({2, 3, 4, 5});
  const TensorMap tensors{{"channels_last", image.contiguous(at::MemoryFormat::ChannelsLast)},
                          {"transposed", image.transpose(1, 3)},
                          {"strided", image.slice(3, 0, 5, 2)},
                          {"expanded", at::full({1}, 3.0F).expand({4})}};
  write_safetensors(dir / "a", tensors);
  const auto file = read_safetensors(dir / "a");
  expect_equal(file.tensors, tensors);
  EXPECT_TRUE(file.tensors.at("channels_last").is_contiguous());
}

TEST(Safetensors, TheBytesOfASmallFile) {
  const test::TempDir dir;
  write_safetensors(dir / "a", {{"b", at::full({2}, 1, at::kByte)}, {"z", at::full({1}, 1.0F)}});
  const std::string json = R"({"__metadata__":{"format":"pt"},"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  const std::string padding((8 - json.size() % 8) % 8, ' ');
  EXPECT_EQ(test::slurp(dir / "a"), with_length(json + padding) + std::string("\0\0\x80\x3f\1\1", 6));
}

TEST(Safetensors, TheReturnedDigestIsThatOfTheFile) {
  const test::TempDir dir;
  const auto digest = write_safetensors(dir / "a", {{"x", at::arange(3'000'000, at::kFloat)}});
  EXPECT_EQ(digest, digest_file(dir / "a"));
}

TEST(Safetensors, ReadTensorsAreWritableAndTheFileStaysAsItIs) {
  const test::TempDir dir;
  write_safetensors(dir / "a", {{"x", at::zeros({4})}});
  auto tensor = read_safetensors(dir / "a").tensors.at("x");
  tensor.fill_(7.0);
  EXPECT_TRUE(read_safetensors(dir / "a").tensors.at("x").equal(at::zeros({4})));
}

TEST(Safetensors, TensorsOutliveTheFile) {
  const test::TempDir dir;
  write_safetensors(dir / "a", {{"x", at::arange(100'000)}});
  const auto tensor = read_safetensors(dir / "a").tensors.at("x");
  std::filesystem::remove(dir / "a");
  EXPECT_TRUE(tensor.equal(at::arange(100'000)));
}

TEST(Safetensors, AFileWithAnOddHeaderLengthIsRead) {
  const test::TempDir dir;
  std::string data(4, '\0');
  const float one = 1.0F;
  std::memcpy(data.data(), &one, sizeof(one));
  test::spill(dir / "a", with_length(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )") + data);
  const auto tensor = read_safetensors(dir / "a").tensors.at("x");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 4, 0U);
  EXPECT_EQ(tensor.item<float>(), 1.0F);
}

TEST(Safetensors, AnUnsupportedDtypeIsNamedWhenWritten) {
  const test::TempDir dir;
  const auto text = test::error_of<CheckpointError>([&] {
    write_safetensors(dir / "a", {{"z", at::zeros({1}, at::kComplexFloat)}});
  });
  EXPECT_THAT(text, HasSubstr("\"z\" has dtype ComplexFloat, expected one of I64 F64 F32"));
  EXPECT_THAT(test::names_in(dir.path()), ElementsAre());
}

TEST(Safetensors, ABooleanIsZeroOrOne) {
  const test::TempDir dir;
  test::spill(dir / "a",
              with_length(R"({"x":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})") + std::string("\1\2", 2));
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_safetensors(dir / "a"); }),
              HasSubstr("\"x\" of dtype BOOL holds 2"));
}

TEST(Safetensors, ErrorsNameTheFile) {
  const test::TempDir dir;
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_safetensors(dir / "none"); }),
              HasSubstr((dir / "none").string()));
  test::spill(dir / "empty", "");
  EXPECT_THAT(test::error_of<CheckpointError>([&] { return read_safetensors(dir / "empty"); }),
              HasSubstr((dir / "empty").string() + " is not a valid safetensors file: it has 0 bytes"));
}

}  // namespace
}  // namespace sluice::storage
