#!/usr/bin/env python3
"""Checks that every package of the running Python environment is completely installed.

usage: .venv/bin/python scripts/verify_venv.py

Each file in a package's RECORD must exist with its size. An interrupted pip leaves packages without RECORD, with missing or
short files, or folders that begin with '~'; pip regards some of these as installed.
Exit code: 0 complete, 1 not; the broken packages are named.
"""

import importlib.metadata
import pathlib
import sys
import sysconfig


def defect(distribution):
    """What is wrong with one package, or an empty string."""
    files = distribution.files
    if files is None:
        return "has no RECORD"
    for file in files:
        path = file.locate()
        try:
            size = path.stat().st_size
        except OSError:
            if file.suffix != ".pyc":
                return f"lacks {file}"
            continue
        if file.size is not None and size != file.size:
            return f"has {size} of {file.size} bytes of {file}"
    return ""


def main():
    site = pathlib.Path(sysconfig.get_path("purelib"))
    broken = [f"{path.name}: left over by an interrupted pip" for path in site.glob("~*")]
    for distribution in importlib.metadata.distributions(path=[str(site)]):
        what = defect(distribution)
        if what:
            broken.append(f"{distribution.metadata['Name']} {what}")
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
