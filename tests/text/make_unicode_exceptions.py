#!/usr/bin/env python3
"""Writes src/text/unicode_exceptions.h: every code point for which `tokenizers` and our libraries disagree.

usage: make_unicode_exceptions.py [--check] HEADER

--check   compares with HEADER instead of writing it; exit code 1: they differ

`tokenizers` has Unicode tables of several versions (Rust's standard library, the crates unicode_categories and
unicode-normalization-alignments, Oniguruma). Ours come from ICU, restricted by age, and from PCRE2. Run it again after
an update of tokenizers, ICU or PCRE2.
"""

import ctypes
import ctypes.util
import pathlib
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
ALL = "".join(map(chr, POINTS))
CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Me Mc Nd Nl No Zs Zl Zp Cc Cf Co Cs Pd Ps Pe Pc Po Sm Sc Sk So Pi Pf".split()  # ICU's numbers
ASCII_PUNCTUATION = {ord(c) for c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}


class Icu:
    def __init__(self):
        name = ctypes.util.find_library("icuuc")
        self.library, self.suffix = ctypes.CDLL(name), name.split(".so.")[1].split(".")[0]
        self.category = {c: CATEGORIES[self.call("u_charType", c)] for c in POINTS}
        self.age = {c: self.age_of(c) for c in POINTS}
        self.alphabetic = {c for c in POINTS if self.call("u_hasBinaryProperty", c, 0)}

    def call(self, name, *arguments):
        return getattr(self.library, f"{name}_{self.suffix}")(*arguments)

    def age_of(self, c):
        version = (ctypes.c_uint8 * 4)()
        self.call("u_charAge", c, version)
        return tuple(version[:2])

    def of(self, categories, newest=(99, 0)):
        return {c for c in POINTS if self.category[c] in categories and (0, 0) < self.age[c] <= newest}


def pcre2_points(category):
    library = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
    library.pcre2_compile_8.restype = library.pcre2_match_data_create_8.restype = ctypes.c_void_p
    library.pcre2_get_ovector_pointer_8.restype = ctypes.POINTER(ctypes.c_size_t)
    error, where = ctypes.c_int(), ctypes.c_size_t()
    pattern = rf"\p{{{category}}}+".encode()
    code = ctypes.c_void_p(library.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), 0x000A0000,  # UTF, UCP
                                                   ctypes.byref(error), ctypes.byref(where), None))
    data = ctypes.c_void_p(library.pcre2_match_data_create_8(1, None))
    subject = ALL.encode()
    found, start = set(), 0
    while library.pcre2_match_8(code, subject, ctypes.c_size_t(len(subject)), ctypes.c_size_t(start), 0x40000000, data, None) > 0:
        begin, end = library.pcre2_get_ovector_pointer_8(data)[0:2]
        found |= set(map(ord, subject[begin:end].decode()))
        start = end
    return found


def oniguruma_points(category):
    rest = pre_tokenizers.Split(Regex(rf"\p{{{category}}}+"), "removed").pre_tokenize_str(ALL)
    return set(POINTS) - {POINTS[i] for _, (begin, end) in rest for i in range(begin, end)}


def removed_by(pre_tokenizer):
    rest = pre_tokenizer.pre_tokenize_str(ALL)
    return set(POINTS) - {POINTS[i] for _, (begin, end) in rest for i in range(begin, end)}


def normalized(normalizer):
    return {c: normalizer.normalize_str(chr(c)) for c in POINTS}


def ranges_of(points):
    first = last = None
    for c in sorted(points):
        if last is not None and (c == last + 1 or (last, c) == (0xD7FF, 0xE000)):
            last = c
            continue
        if first is not None:
            yield first, last
        first = last = c
    if first is not None:
        yield first, last


def bert(**options):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **options})


def property_exceptions(icu):
    """(name, points of the oracle, our points by rule) of each property in src/text/unicode.cpp."""
    punctuation, marks = {"Pd", "Ps", "Pe", "Pc", "Po", "Pi", "Pf"}, {"Mn", "Mc", "Me"}
    cleaned = normalized(bert(clean_text=True))
    yield "kControl", {c for c in POINTS if cleaned[c] == ""}, \
        (icu.of({"Cc", "Cf", "Co"}, (8, 0)) - {9, 10, 13}) | {0xFFFD}
    yield "kPunctuation", removed_by(pre_tokenizers.Punctuation("removed")), icu.of(punctuation, (8, 0)) | ASCII_PUNCTUATION
    accents = normalized(bert(strip_accents=True))
    yield "kNonspacing", {c for c in POINTS if accents[c] == ""}, icu.of({"Mn"}, (8, 0))
    stripped = normalized(normalizers.StripAccents())
    yield "kMark", {c for c in POINTS if stripped[c] == ""}, icu.of(marks, (9, 0))
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True)]).pre_tokenize_str("a".join(ALL))
    numeric = {ord(text) for text, _ in digits if len(text) == 1 and text != "a"}
    yield "kNumeric", numeric, icu.of({"Nd", "Nl", "No"})
    yield "kSpace", removed_by(pre_tokenizers.WhitespaceSplit()), \
        {c for c in POINTS if icu.call("u_isUWhiteSpace", c)}
    words = {ord(text) for text, _ in pre_tokenizers.Whitespace().pre_tokenize_str("! !".join(ALL)) if text != "!"
             and len(text) == 1}
    yield "kWord", words, icu.alphabetic | icu.of(marks | {"Nd", "Pc"}) | {0x200C, 0x200D}


def lower_exceptions(icu):
    ours = {c: icu.call("u_tolower", c) for c in POINTS}
    theirs = normalized(normalizers.Lowercase())
    for c in POINTS:
        if theirs[c] != chr(ours[c]):
            yield c, list(map(ord, theirs[c]))


def packed(entries):
    """Lines of at most 120 columns."""
    lines = ["   "]
    for entry in entries:
        if len(lines[-1]) + len(entry) + 2 > 120:
            lines.append("   ")
        lines[-1] += f" {entry},"
    return lines


def write(icu):
    lines = ["// Made by tests/text/make_unicode_exceptions.py. See there and src/text/unicode.h.",
             "// clang-format off", "#pragma once", "", "#include <cstdint>", "", "namespace sluice::text {", "",
             "enum class Property : std::uint16_t {"]
    properties = list(property_exceptions(icu))
    lines += [f"  {name} = {1 << i}," for i, (name, _, _) in enumerate(properties)]
    lines += ["};", "", "// Ranges in which a property differs from the rule in unicode.cpp.",
              "struct PropertyException {", "  char32_t first, last;", "  Property property;", "  bool holds;", "};",
              "inline constexpr PropertyException kPropertyExceptions[] = {"]
    lines += packed(f"{{{first:#x}, {last:#x}, Property::{name}, {holds}}}" for name, oracle, ours in properties
                    for points, holds in ((oracle - ours, "true"), (ours - oracle, "false")) for first, last in ranges_of(points))
    lines += ["};", "", "// Lower case that differs from u_tolower().", "struct LowerException {",
              "  char32_t point, lower[3];", "};", "inline constexpr LowerException kLowerExceptions[] = {"]
    lines += packed(f"{{{c:#x}, {{{', '.join(f'{x:#x}' for x in lower)}}}}}" for c, lower in lower_exceptions(icu))
    lines += ["};", "", "// Code points whose category in Oniguruma is another one than in PCRE2. `like` is a code point of",
              "// Oniguruma's category, of as many bytes in UTF-8, about which both agree.",
              "struct CategoryException {", "  char32_t first, last, like;", "};",
              "inline constexpr CategoryException kCategoryExceptions[] = {"]
    assigned = {name: (oniguruma_points(name), pcre2_points(name)) for name in CATEGORIES if name not in ("Cn", "Cs", "Co")}
    in_oniguruma, in_pcre2 = (set().union(*(both[i] for both in assigned.values())) for i in (0, 1))
    assigned["Cn"] = [set(POINTS) - found - icu.of({"Co"}) for found in (in_oniguruma, in_pcre2)]
    found = []
    for name, (oniguruma, pcre2) in assigned.items():
        for first, last in ranges_of(oniguruma - pcre2):
            like = min(c for c in oniguruma & pcre2 if len(chr(c).encode()) == len(chr(first).encode()))
            assert len(chr(first).encode()) == len(chr(last).encode())
            found.append((first, last, like))
    # PCRE2's \s has U+180E, which is a format character everywhere else.
    found.append((0x180E, 0x180E, 0x200B))
    lines += packed(f"{{{first:#x}, {last:#x}, {like:#x}}}" for first, last, like in sorted(found))
    return "\n".join([*lines, "};", "", "}  // namespace sluice::text", ""])


def main():
    header = pathlib.Path(sys.argv[-1])
    text = write(Icu())
    if "--check" in sys.argv:
        return int(header.read_text(encoding="utf-8") != text)
    header.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
