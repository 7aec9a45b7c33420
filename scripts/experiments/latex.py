"""The tables of a table.md in LaTeX, for `\\input` in a paper: one table environment each, by booktabs and graphicx."""

import re
import textwrap

HEAD_LETTERS = 14  # of a line of a head
NARROW = 6  # up to so many columns of a table are one column of a page
NUMBER = re.compile(r"[-+]?[0-9.]+( ?[x%≈]| \([^()]*\)| ± [0-9.]+)*")
ESCAPED = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
           "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$", "±": r"$\pm$", "≈": r"$\approx$", "×": r"$\times$", "µ": r"$\mu$"}


def of_markdown(text, name):
    """The text between the last heading and a table is its caption; the text after it is its note, unless it ends with a colon."""
    result, caption, heading = [], [], ""
    for block in re.split(r"\n\s*\n", text.strip()):
        for is_table, lines in parts_of(block.split("\n")):
            words = inline(" ".join(lines))
            if is_table:
                result.append({"rows": rows_of(lines), "caption": re.sub(":$", ".", " ".join(caption or [heading])), "notes": []})
                caption = []
            elif lines[0].startswith("#"):
                heading = inline(lines[0].lstrip("# ")) + "."  # a caption goes on behind it
                caption = [heading] if result else [*caption, heading]
            elif caption or not result or words.endswith(":"):
                caption.append(words)
            else:
                result[-1]["notes"].append(words)
    tables = [table(one["rows"], one["caption"], f"tab:{name}-{number}", one["notes"]) for number, one in enumerate(result, 1)]
    return "\n".join(["% Needs \\usepackage{booktabs,graphicx}.", *tables, *(f"% {words}" for words in caption)]) + "\n"


def parts_of(lines):
    """Groups of lines in and outside of tables."""
    result = []
    for line in lines:
        is_table = line.startswith("|")
        if not result or result[-1][0] != is_table:
            result.append((is_table, []))
        result[-1][1].append(line)
    return result


def rows_of(lines):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return rows[:1] + rows[2:]  # without the rule


def inline(text):
    parts = re.split(r"(\*\*.+?\*\*|`.+?`)", text)
    return "".join(marked(part) for part in parts)


def marked(part):
    for mark, command in (("**", "textbf"), ("`", "texttt")):
        if len(part) > 2 * len(mark) and part.startswith(mark) and part.endswith(mark):
            return f"\\{command}{{{escaped(part[len(mark) : -len(mark)])}}}"
    return escaped(part)


def escaped(text):
    text = "".join(ESCAPED.get(letter, letter) for letter in text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)  # a minus, no hyphen


def head(text, column):
    """Breaks long heads into lines, because heads make tables wide."""
    lines = textwrap.wrap(text, HEAD_LETTERS, break_long_words=False)
    return rf"\shortstack[{column}]{{" + r" \\ ".join(map(inline, lines)) + "}" if len(lines) > 1 else inline(text)


def table(rows, caption, label, notes):
    """At most as wide as the text, or over both columns of a page. Columns of numbers are right-aligned."""
    heads, *body = rows
    float_name = "table*" if len(heads) > NARROW else "table"
    columns = "".join("r" if all(NUMBER.fullmatch(cell) for cell in column if cell) else "l" for column in zip(*body)) or "l" * len(heads)
    lines = [" & ".join(map(inline, row)) + r" \\" for row in body]
    return "\n".join([
        f"\\begin{{{float_name}}}", r"\centering", f"\\caption{{{caption}}}", f"\\label{{{label}}}", r"\smallskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", f"\\begin{{tabular}}{{{columns}}}", r"\toprule",
        " & ".join(map(head, heads, columns)) + r" \\", r"\midrule", *lines, r"\bottomrule", r"\end{tabular}}",
        *(f"\\par\\smallskip\\footnotesize {words}" for words in notes), f"\\end{{{float_name}}}", ""])
