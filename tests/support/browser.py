"""A real browser without a screen (Debian's chromium): what a page holds once its scripts have run, what it complains of,
what it looks like. Whoever imports this where there is no chromium exits 77."""

import pathlib
import shutil
import struct
import subprocess
import tempfile
import zlib

CHROMIUM = shutil.which("chromium")
PATIENCE_S = 120
if CHROMIUM is None:
    print("skipped: no chromium; apt-get install chromium")
    raise SystemExit(77)


def _run(page, *options, width=1200, height=2400, dark=False):
    with tempfile.TemporaryDirectory() as profile:
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", f"--user-data-dir={profile}", "--virtual-time-budget=2000", "--enable-logging=stderr",
                   f"--window-size={width},{height}", *(["--blink-settings=preferredColorScheme=0"] if dark else []),
                   *options, pathlib.Path(page).resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, complaints


def document(page, **look):
    """The page as HTML once it is drawn, and what its console says."""
    return _run(page, "--dump-dom", **look)


def screenshot(page, file, **look):
    """A picture of it; returns what the console says."""
    return _run(page, f"--screenshot={file}", **look)[1]


def distinct_lines(png):
    """How many different lines of pixels a picture has, as they are stored: few where it is blank."""
    data, at, packed, width = pathlib.Path(png).read_bytes(), 8, b"", 0
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, _, _, colour = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            packed += body
        at += length + 12
    row = 1 + width * {2: 3, 6: 4}[colour]
    pixels = zlib.decompress(packed)
    return len({pixels[i:i + row] for i in range(0, len(pixels), row)})
