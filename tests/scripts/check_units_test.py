#!/usr/bin/env python3
"""scripts/check_units.py: a name that two files of a library hide is found, whatever it is of; others are left alone."""

import unittest

import checked_folder

LIBRARY = {"src/core/CMakeLists.txt": "sluice_library(NAME core SRCS a.cpp  # the first\n  b.cpp DEPS x)\n"}

# What a.cpp and b.cpp both hide: (text of one, text of the other, the name).
SHARED = (
    ("bool is_fast(int x) { return x > 0; }", "bool is_fast(const char* x);", "is_fast"),
    ("template <typename T, int N = (3 > 2)>\nT first(T x) { return x; }", "std::vector<std::map<int, int>> first() { return {}; }", "first"),
    ("[[noreturn]] void fail(std::string_view what) { throw what; }", "void fail() {}", "fail"),
    ("constexpr int kSize = 3;", "constexpr std::array kSize{1, 2};", "kSize"),
    ("constexpr double kLow = 1, kHigh = 2'000;", "const char kQuote = '\\'', kBrace = '{';\nint kHigh(3);", "kHigh"),
    ("int table[3][4];", "float table[2] = {1, 2};", "table"),
    ("const auto square = [](int x) { return x * x; };", "int square(int x) { return x * x; }", "square"),
    ("struct Head : Base<int> { int run() { return 1; } };", "class Head final : public Base<int> {};", "Head"),
    ("enum class Kind : int { kOne };", "struct [[nodiscard]] Kind {};", "Kind"),
    ("using Number = int;", "using Number = double;", "Number"),
    ("namespace deeper {\nint f() { return 1; }\n}", "int f() { return 2; }", "f"),
)

# What they may both have.
HARMLESS = (
    ("using fs = std::filesystem;", "using fs = std::filesystem;"),
    ("struct Head;", "struct Head;"),
    ("struct A { int size = 1; void run() { int x = 2; } };", "struct B { int size = 1; void run() { int x = 2; } };"),
    ("struct A { void run(); };\nvoid A::run() {}", "struct B { void run(); };\nvoid B::run() {}"),
    ("bool operator==(A, A) { return true; }", "bool operator==(B, B) { return true; }"),
    ("// int f();\n/* int g(); */\n#define H(x) int f() { return x; }\nint a = 1;", "constexpr auto kText = R\"(int f();)\";"),
)


def source(hidden, seen=""):
    return f"#include <map>\n\nnamespace sluice {{\nnamespace {{\n\n{hidden}\n\n}}  // namespace\n\n{seen}\n}}\n"


def check(files):
    return checked_folder.check("check_units.py", files)


class UnitNamesTest(unittest.TestCase):
    def test_what_two_files_hide_under_one_name_is_found(self):
        for one, other, name in SHARED:
            with self.subTest(name=name, one=one):
                code, lines = check(LIBRARY | {"src/core/a.cpp": source(one), "src/core/b.cpp": source(other)})
                self.assertEqual((code, len(lines)), (70, 1), lines)
                self.assertRegex(lines[0], rf"^src/core/b.cpp:\d+: error: '{name}' .*src/core/a.cpp:\d+")

    def test_both_places_are_named_by_their_lines(self):
        _, lines = check(LIBRARY | {"src/core/a.cpp": source("int f();"), "src/core/b.cpp": source("\n\nint f();")})
        self.assertTrue(lines[0].startswith("src/core/b.cpp:8: "), lines)
        self.assertIn("src/core/a.cpp:6,", lines[0])

    def test_what_cannot_be_mixed_up_is_left_alone(self):
        for one, other in HARMLESS:
            with self.subTest(one=one):
                code, lines = check(LIBRARY | {"src/core/a.cpp": source(one), "src/core/b.cpp": source(other)})
                self.assertEqual((code, lines), (0, []))

    def test_what_a_file_shows_is_not_hidden(self):
        files = {"src/core/a.cpp": source("int f();", seen="int g() { return 1; }"), "src/core/b.cpp": source("int g();")}
        self.assertEqual(check(LIBRARY | files), (0, []))

    def test_files_of_other_libraries_and_of_none_that_is_joined_are_left_alone(self):
        files = {
            "src/core/CMakeLists.txt": "sluice_library(NAME one SRCS a.cpp)\nsluice_library(NAME two SRCS b.cpp)\nadd_library(three c.cpp d.cpp)\n",
            **{f"src/core/{name}.cpp": source("int f();") for name in "abcd"},
        }
        self.assertEqual(check(files), (0, []))

    def test_an_executable_that_is_joined_is_checked(self):
        files = {
            "models/CMakeLists.txt": "add_executable(tool\n  a.cpp sub/b.cpp)\nsluice_unite(tool)\n",
            "models/a.cpp": source("int f();"),
            "models/sub/b.cpp": source("int f();"),
        }
        self.assertEqual(check(files)[0], 70)

    def test_of_the_files_that_a_variable_may_name_a_build_has_one(self):
        cmake = "if(X)\n  set(side with.cpp)\nelse()\n  set(side without.cpp)\nendif()\nsluice_library(NAME core SRCS a.cpp ${side})\n"
        files = {"src/core/CMakeLists.txt": cmake, "src/core/with.cpp": source("int f();"), "src/core/without.cpp": source("int f();")}
        self.assertEqual(check(files | {"src/core/a.cpp": source("int g();")}), (0, []))
        self.assertEqual(check(files | {"src/core/a.cpp": source("int f();")})[0], 70)


if __name__ == "__main__":
    unittest.main()
