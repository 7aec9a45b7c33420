// Every rule of the format, and the cases in which the official reader (0.8.0) is lenient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "storage/safetensors_header.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::HasSubstr;

struct Case {
  std::string name;
  std::string json;
  std::string data;
  std::string problem;  // part of the message; empty: accepted
};

std::string file_of(const Case& c) {
  const std::uint64_t length = c.json.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + c.json + c.data;
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "w.safetensors");
}

std::string one(const std::string& inner) { return R"({"x":{)" + inner + "}}"; }
std::string u8(const std::string& name, int begin, int end) {
  return '"' + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) + R"(],"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::vector<Case> cases() {
  const std::string four = "abcd";
  const std::string x = u8("x", 0, 4);
  return {
      // accepted by both readers
      {"Plain", "{" + x + "}", four, ""},
      {"NoTensors", "{}", "", ""},
      {"SpacesAfter", "{" + x + "}   ", four, ""},
      {"SpacesWithin", "{ " + x + " }", four, ""},
      {"MetadataOnly", R"({"__metadata__":{"a":"b"}})", "", ""},
      {"TextOrderDiffersFromDataOrder", "{" + u8("b", 2, 4) + "," + u8("a", 0, 2) + "}", four, ""},
      {"Scalar", one(R"("dtype":"F32","shape":[],"data_offsets":[0,4])"), four, ""},
      {"ZeroSize", one(R"("dtype":"F32","shape":[0,5],"data_offsets":[0,0])"), "", ""},
      {"KeysInAnyOrder", one(R"("data_offsets":[0,4],"shape":[4],"dtype":"U8")"), four, ""},
      // rejected by both
      {"HoleAtStart", "{" + u8("x", 1, 4) + "}", four, "\"x\" begins at 1, expected 0 (a hole)"},
      {"HoleBetween", "{" + u8("a", 0, 1) + "," + u8("b", 2, 4) + "}", four, "\"b\" begins at 2, expected 1 (a hole)"},
      {"Overlap", "{" + u8("a", 0, 3) + "," + u8("b", 2, 4) + "}", four, "\"b\" begins at 2, expected 3 (it overlaps"},
      {"SameBytesTwice", "{" + u8("a", 0, 4) + "," + u8("b", 0, 4) + "}", four, "overlaps"},
      {"TrailingByte", "{" + x + "}", "abcde", "it has 5 bytes of data, expected 4 (bytes follow"},
      {"TruncatedData", "{" + x + "}", "abc", "it has 3 bytes of data, expected 4 (truncated)"},
      {"NegativeOffset", one(R"("dtype":"U8","shape":[4],"data_offsets":[-1,4])"), four, "a negative number"},
      {"FloatOffset", one(R"("dtype":"U8","shape":[4],"data_offsets":[0.0,4])"), four, "not a 64-bit integer"},
      {"HugeOffset", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,99999999999999999999])"), four, "not a 64-bit"},
      {"OffsetsReversed", one(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), four,
       "expected 4 bytes by its shape"},
      {"OneOffset", one(R"("dtype":"U8","shape":[4],"data_offsets":[0])"), four, "has 1 data_offsets, expected 2"},
      {"ShapeAndOffsetsDisagree", one(R"("dtype":"U8","shape":[3],"data_offsets":[0,4])"), four, "expected 3 bytes"},
      {"SizeOverflows", one(R"("dtype":"F64","shape":[4611686018427387904,8],"data_offsets":[0,0])"), "", "overflows"},
      {"NegativeShape", one(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"), four, "a negative number"},
      {"UnknownDtype", one(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), four,
       "dtype \"F33\", expected one of"},
      {"MissingDtype", one(R"("shape":[4],"data_offsets":[0,4])"), four, "no dtype in tensor \"x\""},
      {"MissingOffsets", one(R"("dtype":"U8","shape":[4])"), four, "no data_offsets in tensor \"x\""},
      {"MetadataNumber", R"({"__metadata__":{"a":1}})", "", "a number at key \"a\" in __metadata__, expected a string"},
      {"MetadataNested", R"({"__metadata__":{"a":{}}})", "", "an object at key \"a\" in __metadata__"},
      {"NotAnObject", "[]", "", "does not begin with '{'"},
      {"TensorIsNull", R"({"x":null})", "", "null at key \"x\" in the header, expected an object"},
      {"NotJson", "{\"x\":}", "", "is not JSON at byte"},
      {"NotUtf8", "{\"\xff\":{}}", "", "is not JSON at byte"},
      {"EmptyHeader", "", "", "does not begin with '{'"},
      // accepted by the official reader, rejected here
      {"DuplicateTensorWithEqualEntry", "{" + x + "," + x + "}", four, "duplicate key \"x\" in the header"},
      {"DuplicateTensorWithAnotherEntry", "{" + u8("x", 0, 2) + "," + u8("x", 2, 4) + "}", four, "duplicate key \"x\""},
      {"DuplicateMetadata", R"({"__metadata__":{"a":"b","a":"b"}})", "", "duplicate key \"a\" in __metadata__"},
      {"DuplicateField", one(R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])"), four,
       "duplicate key \"dtype\""},
      {"DuplicateByEscape", "{" + x + R"(,"\u0078":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})", four,
       "duplicate key"},
      {"SpaceBefore", " {" + x + "}", four, "does not begin with '{'"},
      {"NewlineAfter", "{" + x + "}\n", four, "does not end with '}' and spaces"},
      {"UnknownField", one(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"strides":[1])"), four,
       "unknown key \"strides\""},
      {"DtypeWeDoNotRead", one(R"("dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4])"), four, "dtype \"F8_E4M3\""},
      {"ZeroTimesTooMuch", one(R"("dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0])"), "",
       "overflows"},
      {"TextAfterTheObject", "{} {}", "", "is not JSON at byte"},
  };
}

class Conformance : public testing::TestWithParam<Case> {};

TEST_P(Conformance, IsAcceptedOrRefusedWithTheReason) {
  const auto file = file_of(GetParam());
  if (GetParam().problem.empty()) {
    EXPECT_NO_THROW(parse(file));
    return;
  }
  const auto text = test::error_of<CheckpointError>([&] { parse(file); });
  EXPECT_THAT(text, HasSubstr("w.safetensors is not a valid safetensors file: "));
  EXPECT_THAT(text, HasSubstr(GetParam().problem));
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, Conformance, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// An unaligned header is legal: the official reader takes it, and old writers made such files.
TEST(SafetensorsHeader, AnUnalignedHeaderIsAccepted) {
  const Case c{"", "{" + u8("x", 0, 4) + "} ", "abcd", ""};
  EXPECT_EQ(parse(file_of(c)).data_begin, 8 + c.json.size());
}

TEST(SafetensorsHeader, LengthsThatCannotBeAreRefusedBeforeTheyAreUsed) {
  for (const std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{100'000'001}}) {
    std::string file(sizeof(length), '\0');
    std::memcpy(file.data(), &length, sizeof(length));
    EXPECT_THAT(test::error_of<CheckpointError>([&] { parse(file + "{}"); }), HasSubstr("expected at most 100000000"));
  }
  std::string file(8, '\0');
  file[0] = 3;
  EXPECT_THAT(test::error_of<CheckpointError>([&] { parse(file + "{}"); }), HasSubstr("(truncated)"));
  EXPECT_THAT(test::error_of<CheckpointError>([&] { parse("1234567"); }), HasSubstr("it has 7 bytes"));
}

// What torch.save begins a file with: since 1.6 a ZIP archive, before a pickle.
TEST(SafetensorsHeader, APickleOfPyTorchIsNamedAsSuch) {
  const std::string zip("PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0archive/data.pkl", 32);
  const std::string pickle(
      "\x80\x02\x8a\x0al\xfc\x9c"
      "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
      21);
  for (const std::string& file : {zip, pickle, pickle.substr(0, 8)}) {
    EXPECT_EQ(test::error_of<CheckpointError>([&] { parse(file); }),
              "w.safetensors is a PyTorch pickle (.pth, .pt, .bin), which Sluice does not read; convert it to "
              "safetensors: `python scripts/convert_weights.py FILE OUT` does that (docs/how-to/weights.md)");
  }
  // 640 bytes of header: the same first two bytes.
  const std::string name(640 - u8("", 0, 4).size() - 2, 'n');
  EXPECT_NO_THROW(parse(file_of({"", "{" + u8(name, 0, 4) + "}", "abcd", ""})));
}

TEST(SafetensorsHeader, DeepNestingAndLongNamesGiveShortMessages) {
  const auto nested = test::error_of<CheckpointError>([] {
    parse(file_of({"", R"({"x":)" + std::string(1'000'000, '[') + "}", "", ""}));
  });
  EXPECT_LT(nested.size(), 500U);
  const std::string name(1'000'000, 'n');
  const auto named = test::error_of<CheckpointError>([&] {
    parse(file_of({"", "{" + u8(name, 1, 4) + "}", "abcd", ""}));
  });
  EXPECT_LT(named.size(), 500U);
}

TEST(SafetensorsHeader, MoreThan64DimensionsAreRefused) {
  std::string shape = "4";
  for (int i = 0; i < 64; ++i) shape += ",1";
  const auto json = one(R"("dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,4])");
  EXPECT_THAT(test::error_of<CheckpointError>([&] {
                parse(file_of({"", json, "abcd", ""}));
              }),
              HasSubstr("65 dimensions"));
}

// No truncated or changed header crashes; an accepted one tiles the data.
TEST(SafetensorsHeader, EveryTruncationAndManyMutationsEitherParseOrThrow) {
  const auto good =
      file_of({"", "{" + u8("a", 0, 1) + "," + u8("b", 1, 4) + R"(,"__metadata__":{"k":"v"}}  )", "abcd", ""});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(parse(good.substr(0, size)), CheckpointError) << size;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    auto file = good;
    file[random() % file.size()] = static_cast<char>(random());
    try {
      const auto header = parse(file);
      std::uint64_t end = 0;
      for (const auto& entry : header.entries) {
        ASSERT_EQ(entry.begin, end);
        end = entry.end;
      }
      ASSERT_EQ(header.data_begin + end, file.size());
    } catch (const CheckpointError&) {
      continue;
    }
  }
}

}  // namespace
}  // namespace sluice::storage
