"""A page in headless Chromium, used as a person does: clicks and drags, by the DevTools protocol over a pipe."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time


def find():
    """The browser's path, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Page:
    def __init__(self, url, width=1280, height=900, dark=False):
        self.profile = tempfile.mkdtemp(prefix="zeroute-browser.")
        to_us, theirs_out = os.pipe()
        theirs_in, from_us = os.pipe()

        def descriptors():
            # Chromium reads commands from 3 and writes answers to 4.
            keep_in, keep_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(keep_in, 3)
            os.dup2(keep_out, 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=descriptors, close_fds=False)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read, self.write = os.fdopen(to_us, "rb", 0), os.fdopen(from_us, "wb", 0)
        self.buffer, self.number, self.session = b"", 0, None
        self.requests, self.errors = [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        if dark:
            self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.call("Page.navigate", url=url)
        self.wait("document.body && document.body.dataset.ready === 'yes'")

    def message(self):
        while b"\0" not in self.buffer:
            more = self.read.read(1 << 16)
            if not more:
                raise RuntimeError("the browser is gone")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        self.write.write(json.dumps(command).encode() + b"\0")
        while True:
            m = self.message()
            if m.get("method") == "Network.requestWillBeSent":
                self.requests.append(m["params"]["request"]["url"])
            elif m.get("method") == "Runtime.exceptionThrown":
                self.errors.append(m["params"]["exceptionDetails"])
            elif m.get("id") == self.number:
                if "error" in m:
                    raise RuntimeError(f"{method}: {m['error']}")
                return m["result"]

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise RuntimeError(f"not within {seconds} s: {condition}")
            time.sleep(0.05)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def box(self, selector):
        """Where an element is in the window, once it was scrolled into view."""
        return self.js(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();
            return [r.left, r.top, r.width, r.height]; }})()""")

    def mouse(self, kind, x, y):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left",
                  clickCount=0 if kind == "mouseMoved" else 1)

    def click(self, selector, at=(0.5, 0.5)):
        left, top, width, height = self.box(selector)
        x, y = left + width * at[0], top + height * at[1]
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def hover(self, selector, at=(0.5, 0.5)):
        left, top, width, height = self.box(selector)
        self.mouse("mouseMoved", left + width * at[0], top + height * at[1])

    def drag(self, selector, start, end):
        left, top, width, height = self.box(selector)
        y = top + height * start[1]
        self.mouse("mouseMoved", left + width * start[0], y)
        self.mouse("mousePressed", left + width * start[0], y)
        for i in range(1, 6):
            self.mouse("mouseMoved", left + width * (start[0] + (end[0] - start[0]) * i / 5), y)
        self.mouse("mouseReleased", left + width * end[0], y)

    def picture(self, path, clip=None, whole=False):
        params = {"format": "png", "captureBeyondViewport": bool(whole or clip)}
        if clip:
            params["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        elif whole:
            w, h = self.js("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
            params["clip"] = {"x": 0, "y": 0, "width": w, "height": h, "scale": 1}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", **params)["data"]))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        self.process.wait(30)
        shutil.rmtree(self.profile, ignore_errors=True)
