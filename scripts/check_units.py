#!/usr/bin/env python3
"""Checks that no two files of a library define the same name in their anonymous namespaces.

usage: scripts/check_units.py [ROOT]

Several files of a library are compiled as one unit (sluice_unite in cmake/SluiceTargets.cmake), which joins their
anonymous namespaces. Two functions with the same name become overloads there, so the wrong one may be called. Two types or
constants are a compile error as soon as both files are in one unit. Equal aliases are allowed.
Checks the sources of sluice_library and sluice_unite in src/ and models/.
Exit codes: 0 nothing found, 70 findings (one line each).
"""

import collections
import pathlib
import re
import sys

FOLDERS = ("src", "models")

TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*)
      | R"(?P<fence>[^(\s]*)\((?:.*?)\)(?P=fence)"
      | "(?:\\.|[^"\\\n])*"
      | \.?[0-9](?:'?[\w.])*
      | '(?:\\.|[^'\\\n])*'
      | (?P<word>[A-Za-z_]\w*)
      | ::|\[\[|\]\]|.""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
OPENING = {"(": ")", "{": "}", "[": "]", "[[": "]]"}
TYPES = {"struct", "class", "union", "enum"}
NO_DEFINITION = {"static_assert", "friend", "extern", "namespace"}
TAKES_PARENTHESES = {"alignas", "decltype", "noexcept", "explicit", "requires"}

Token = collections.namedtuple("Token", "text line")
Definition = collections.namedtuple("Definition", "name line meaning")  # meaning: of an alias, else None


def tokens_of(text):
    """Tokens without blanks, comments and preprocessor lines."""
    line = 1
    for match in TOKEN.finditer(text):
        if match.lastgroup != "blank":
            yield Token(match.group(), line)
        line += match.group().count("\n")


def after_group(tokens, at):
    """The index after the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(tokens)):
        text = tokens[index].text
        depth += (text in OPENING) - (text in OPENING.values())
        if depth == 0:
            return index + 1
    return len(tokens)


def after_angles(tokens, at):
    """The index after the `>` that closes the `<` at `at`."""
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if text in OPENING:
            at = after_group(tokens, at)
            continue
        depth += (text == "<") - (text == ">")
        at += 1
        if depth == 0:
            break
    return at


def is_name(token):
    return re.fullmatch(r"[A-Za-z_]\w*", token.text) is not None


def unqualified(tokens, at):
    """The name at `at`, unless it is a member's definition (Type::name)."""
    defines = at >= 0 and is_name(tokens[at]) and (at == 0 or tokens[at - 1].text != "::")
    return [Definition(tokens[at].text, tokens[at].line, None)] if defines else []


class Declaration:
    """One declaration, read token by token; the tokens so far decide the meaning of the next. Brackets are skipped."""

    def __init__(self, tokens, at):
        while at < len(tokens) and tokens[at].text in ("[[", "template"):
            at = after_group(tokens, at) if tokens[at].text == "[[" else after_angles(tokens, at + 1)
        self.tokens, self.first, self.at = tokens, at, at
        self.definitions = []
        self.is_type = self.text() in TYPES
        self.is_function = self.is_value = False  # it has a parameter list; an initial value has begun
        self.has_body = False  # with which it ends

    def read(self):
        while not self.has_body and self.text() not in ("", ";"):
            self.take()
        if self.has_body:
            return self.at, self.definitions
        return self.at + 1, self.definitions_without_body()

    def text(self):
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self):
        takers = {"<": self.take_angles, "operator": self.take_operator, "(": self.take_parameters, "=": self.take_value,
                  ",": self.take_value, "{": self.take_braces}
        takers.get(self.text(), self.skip)()

    def skip(self):
        self.at = after_group(self.tokens, self.at) if self.text() in OPENING else self.at + 1

    def take_angles(self):
        self.at = self.at + 1 if self.is_value else after_angles(self.tokens, self.at)

    def take_operator(self):
        """Operators define no name, because they are overloads of each other everywhere."""
        self.is_function = self.is_value = True
        self.at += 1

    def take_parameters(self):
        if not self.is_value and not self.is_function and text_before(self.tokens, self.at) not in TAKES_PARENTHESES:
            self.is_function = True
            self.definitions += unqualified(self.tokens, self.at - 1)
        self.skip()

    def take_value(self):
        """The = before an initial value, or the comma before the next variable."""
        if not self.is_function:
            if not self.is_value and not self.is_type:
                self.define_variable()
            self.is_value = self.text() == "="
        self.at += 1

    def take_braces(self):
        if self.is_type:
            self.definitions = type_name(self.tokens, self.first, self.at)
            self.has_body = True
        elif self.is_function:
            # The braces are the body, unless they follow the = of an operator.
            self.has_body = not (self.is_value and text_before(self.tokens, self.at) == "=")
        elif not self.is_value:
            self.define_variable()
            self.is_value = True
        self.at = after_group(self.tokens, self.at)

    def define_variable(self):
        self.definitions += unqualified(self.tokens, before_array(self.tokens, self.at - 1))

    def definitions_without_body(self):
        word = self.tokens[self.first].text if self.first < len(self.tokens) else ""
        if word == "using":
            return alias(self.tokens[self.first : self.at])
        if word in NO_DEFINITION or self.is_type:
            return []
        if not self.is_function and not self.is_value and self.at > self.first:
            self.define_variable()
        return self.definitions


def end_of_declaration(tokens, at):
    """The index after the declaration at `at`, and its definitions."""
    return Declaration(tokens, at).read()


def text_before(tokens, at):
    return tokens[at - 1].text if at > 0 else ""


def before_array(tokens, at):
    """The index of `name` where `at` is the end of `name[3][4]`."""
    while at > 0 and tokens[at].text == "]":
        while at > 0 and tokens[at].text != "[":
            at -= 1
        at -= 1
    return at


def type_name(tokens, first, brace):
    names = []
    for index in range(first, brace):
        if tokens[index].text in (":", "<"):
            break
        if is_name(tokens[index]) and tokens[index].text not in TYPES | {"final"}:
            names.append(index)
    return unqualified(tokens, names[-1]) if names else []


def alias(tokens):
    texts = [token.text for token in tokens]
    return [Definition(texts[1], tokens[0].line, " ".join(texts[3:]))] if texts[2:3] == ["="] else []


def hidden_definitions(text):
    """Definitions of a source in anonymous namespaces."""
    tokens = list(tokens_of(text))
    scopes = []  # of the namespaces around: whether each is anonymous
    at = 0
    while at < len(tokens):
        if tokens[at].text == "}":
            scopes = scopes[:-1]
            at += 1
        elif tokens[at].text in ("namespace", "inline") and (brace := namespace_brace(tokens, at)) is not None:
            scopes.append(tokens[brace - 1].text == "namespace")
            at = brace + 1
        else:
            at, definitions = end_of_declaration(tokens, at)
            if any(scopes):
                yield from definitions


def namespace_brace(tokens, at):
    """The index of the `{` of a namespace at `at`; None if there is no namespace, or an alias."""
    at += tokens[at].text == "inline"
    if at >= len(tokens) or tokens[at].text != "namespace":
        return None
    while at < len(tokens) and tokens[at].text not in ("{", ";", "="):
        at += 1
    return at if at < len(tokens) and tokens[at].text == "{" else None


def united_sources(cmake_file):
    """{target: [(file, variable that names it or None)]} of the targets whose files are joined."""
    text = re.sub(r"#[^\n]*", "", cmake_file.read_text(encoding="utf-8"))
    variables = collections.defaultdict(list)
    for name, words in re.findall(r"\bset\(\s*(\w+)\s+([^)]*)\)", text):
        variables[name] += words.split()
    calls = re.findall(r"\bsluice_library\(\s*NAME\s+(\w+)([^)]*)\)", text)
    united = re.findall(r"\bsluice_unite\(\s*(\w+)", text)
    calls += [call for call in re.findall(r"\badd_(?:executable|library)\(\s*(\w+)([^)]*)\)", text) if call[0] in united]
    targets = {}
    for target, words in calls:
        sources = []
        for word in words.split():
            variable = re.fullmatch(r"\$\{(\w+)\}", word)
            named = [(one, variable.group(1)) for one in variables[variable.group(1)]] if variable else [(word, None)]
            sources += [(cmake_file.parent / one, of) for one, of in named if one.endswith(".cpp")]
        targets[target] = sources
    return targets


def shared_names(sources):
    """Yields (place, definition, first place) of each name that an earlier source of the target defines too."""
    seen = {}
    for path, variable in sources:
        for definition in hidden_definitions(path.read_text(encoding="utf-8")):
            first = seen.setdefault(definition.name, (path, variable, definition))
            is_same_alias = definition.meaning is not None and definition.meaning == first[2].meaning
            # A build has one of the files of a variable.
            is_alternative = variable is not None and variable == first[1]
            if first[0] != path and not is_same_alias and not is_alternative:
                yield path, definition, first


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found = 0
    for folder in FOLDERS:
        for cmake_file in sorted((root / folder).rglob("CMakeLists.txt")):
            for target, sources in united_sources(cmake_file).items():
                for path, definition, (other, _, first) in shared_names(sources):
                    print(f"{path.relative_to(root)}:{definition.line}: error: '{definition.name}' is also in the anonymous "
                          f"namespace of {other.relative_to(root)}:{first.line}, and files of '{target}' are compiled as "
                          "one unit: give one of them another name")
                    found += 1
    return 70 if found else 0


if __name__ == "__main__":
    sys.exit(main())
