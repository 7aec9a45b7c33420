"""A real browser without a screen (Debian's chromium): what a page holds once its scripts have run, what it complains of,
what it looks like. Whoever imports this where there is no chromium exits 77.

One browser serves all pages of a process. It is driven by the DevTools protocol over two pipes
(https://chromedevtools.github.io/devtools-protocol): JSON messages, each ended by a zero byte.
"""

import atexit
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

CHROMIUM = shutil.which("chromium")
PATIENCE_S = 120
VIRTUAL_MS = 2000  # of a page's own time, after it has loaded
if CHROMIUM is None:
    print("skipped: no chromium; apt-get install chromium")
    raise SystemExit(77)


class _Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # pylint: disable=consider-using-with
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--no-first-run", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"]
        to_browser, from_browser = os.pipe(), os.pipe()
        # It reads descriptor 3 and writes descriptor 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser[0], from_browser[1])]
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *command], pass_fds=ends, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (*ends, to_browser[0], from_browser[1]):
            os.close(end)
        self.to_browser, self.from_browser = to_browser[1], from_browser[0]
        self.received, self.number, self.events = b"", 0, []

    def close(self):
        self.process.kill()
        self.process.wait()
        self.profile.cleanup()

    def message(self, deadline):
        while b"\0" not in self.received:
            readable, _, _ = select.select([self.from_browser], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.from_browser, 1 << 20) if readable else b""
            if not part:
                raise AssertionError("the browser has ended" if readable else f"the browser says nothing for {PATIENCE_S} s")
            self.received += part
        text, _, self.received = self.received.partition(b"\0")
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        """What it answers; events that come before the answer are kept."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to_browser, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.take(answer)

    def take(self, event):
        self.events.append(event)
        if event["method"] == "Page.javascriptDialogOpening":  # else the page waits for an answer
            self.number += 1
            request = {"id": self.number, "method": "Page.handleJavaScriptDialog", "params": {"accept": False},
                       "sessionId": event["sessionId"]}
            os.write(self.to_browser, json.dumps(request).encode() + b"\0")

    def wait_for(self, method, session):
        deadline = time.monotonic() + PATIENCE_S
        while not any(event["method"] == method and event.get("sessionId") == session for event in self.events):
            message = self.message(deadline)
            if "method" in message:
                self.take(message)

    def complaints(self, session):
        """What the console has, in whichever way it came there."""
        of_console = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [f"{event['method']}: {json.dumps(event['params'])}" for event in self.events
                if event["method"] in of_console and event.get("sessionId") == session]


_browser = None


def _look_at(page, get, width=1200, height=2400, dark=False):
    """What get(call) returns of the page once it is drawn, and what its console says."""
    global _browser  # pylint: disable=global-statement
    if _browser is None:
        _browser = _Browser()
        atexit.register(_browser.close)
    browser = _browser
    browser.events.clear()
    context = browser.call("Target.createBrowserContext")["browserContextId"]
    target = browser.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    call = lambda method, **parameters: browser.call(method, session, **parameters)
    for domain in ("Page", "Runtime", "Log"):
        call(f"{domain}.enable")
    call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    call("Emulation.setEmulatedMedia", features=[scheme])
    call("Page.navigate", url=pathlib.Path(page).resolve().as_uri())
    browser.wait_for("Page.loadEventFired", session)
    call("Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=VIRTUAL_MS)
    browser.wait_for("Emulation.virtualTimeBudgetExpired", session)
    result, complaints = get(call), browser.complaints(session)
    browser.call("Target.disposeBrowserContext", browserContextId=context)
    return result, complaints


def document(page, **look):
    """The page as HTML once it is drawn, and what its console says."""
    def get(call):
        return call("Runtime.evaluate", expression="document.documentElement.outerHTML")["result"]["value"]
    return _look_at(page, get, **look)


def screenshot(page, file, **look):
    """A picture of it; returns what the console says."""
    def get(call):
        pathlib.Path(file).write_bytes(base64.b64decode(call("Page.captureScreenshot", format="png")["data"]))
    return _look_at(page, get, **look)[1]


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
