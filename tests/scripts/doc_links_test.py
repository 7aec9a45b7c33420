#!/usr/bin/env python3
"""Links in README.md and docs/ lead to files that are there, and to headings that are there.

    doc_links_test.py [unittest options]
"""

import pathlib
import re
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(page):
    """As GitHub makes them of headings: lower case, words and hyphens alone, spaces become hyphens, the second of a name -1."""
    found = {}
    for heading in re.findall(r"^#+ +(.*)$", without_code(page.read_text(encoding="utf-8")), flags=re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found[name] = found.get(name, 0) + 1
    return {name if i == 0 else f"{name}-{i}" for name, times in found.items() for i in range(times)}


class DocLinksTest(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
        self.assertGreater(len(pages), 10)
        for page in pages:
            for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
                if "://" in link:
                    continue
                with self.subTest(page=page.relative_to(REPOSITORY), link=link):
                    name, _, anchor = link.partition("#")
                    target = (page.parent / name) if name else page
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, anchors_of(target))


if __name__ == "__main__":
    unittest.main()
