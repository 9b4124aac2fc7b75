"""pytest: hold a test to the device memory that it may use.

    @pytest.mark.zeroute(limit_peak="2GiB", no_leaks=True)
    def test_forward(): ...

A marked test runs in a process of its own under the preload (preset observe, unless preset= says otherwise), so its
peak and what it leaves behind are its own. Keywords: limit_peak (a size), no_leaks (nothing may be left allocated when
the process ends), preset, and any setting of zeroute. --zeroute-args passes options to `zeroute run` for all of them,
such as --sim for the simulated GPU.

A caching allocator holds on to its memory: a test of PyTorch calls torch.xpu.empty_cache() before it is checked for
leaks.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

import pytest

from . import _files

INSIDE = "ZEROUTE_PYTEST"  # set in the process of one test
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "KB": 10**3, "MB": 10**6,
         "GB": 10**9, "TB": 10**12}


def pytest_addoption(parser):
    parser.getgroup("zeroute").addoption("--zeroute-args", default="", metavar="OPTIONS",
                                         help="options of `zeroute run` for tests marked zeroute, such as --sim")


def pytest_configure(config):
    config.addinivalue_line("markers", "zeroute(limit_peak=SIZE, no_leaks=BOOL, preset=NAME, SETTING=VALUE...): run the "
                                       "test under zeroute and hold it to these bounds")


def _bytes(size):
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", str(size))
    if not found or found.group(2).upper() not in UNITS:
        raise pytest.UsageError(f"zeroute: limit_peak={size!r}: expected a size such as 2GiB")
    return int(float(found.group(1)) * UNITS[found.group(2).upper()])


def _text(count):
    for unit in ("GiB", "MiB", "KiB"):
        if count >= UNITS[unit.upper()]:
            return f"{count / UNITS[unit.upper()]:.2f} {unit}"
    return f"{count} bytes"


def _command(item, bounds, figures):
    settings = {"preset": "observe", **{k: v for k, v in bounds.items() if k not in ("limit_peak", "no_leaks")}}
    options = [word for name, value in settings.items()
               for word in ("--" + name.replace("_", "-"),
                            ("off", "on")[value] if isinstance(value, bool) else str(value))]
    return [_files.find("zeroute"), "run", *options, *shlex.split(item.config.getoption("--zeroute-args")),
            "--no-summary", "--json", figures, "--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "--rootdir", str(item.config.rootpath), item.nodeid]


def _sum(figures, field):
    with open(figures, encoding="utf-8") as file:
        processes = json.load(file)["processes"]
    return sum(p["fields"].get(field, 0) for p in processes)


def _run(item, bounds):
    limit = _bytes(bounds["limit_peak"]) if "limit_peak" in bounds else None
    with tempfile.TemporaryDirectory() as folder:
        figures = os.path.join(folder, "figures.json")
        done = subprocess.run(_command(item, bounds, figures), cwd=item.config.invocation_params.dir, text=True,
                              env={**os.environ, INSIDE: "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            pytest.fail(done.stdout, pytrace=False)
        if re.search(r"^\d+ skipped", done.stdout, re.M):
            pytest.skip("skipped under zeroute")
        peak, left = _sum(figures, "allocated_bytes.all.peak"), _sum(figures, "allocated_bytes.all.current")
    if limit is not None and peak > limit:
        pytest.fail(f"zeroute: peak device memory {_text(peak)}, {_text(peak - limit)} over the limit of "
                    f"{_text(limit)}", pytrace=False)
    if bounds.get("no_leaks") and left:
        pytest.fail(f"zeroute: {_text(left)} of device memory left allocated at the end of the test", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    mark = pyfuncitem.get_closest_marker("zeroute")
    if mark is None or os.environ.get(INSIDE):
        return None
    if mark.args:
        raise pytest.UsageError("zeroute: the mark takes keywords only: limit_peak=, no_leaks=, preset=, settings")
    _run(pyfuncitem, mark.kwargs)
    return True
