"""Where the files of zeroute are: beside this module in a wheel, in the usual folders otherwise."""

import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
# Of a wheel; of a build in the source folder; of make install and the Debian package.
PLACES = [os.path.join(HERE, "bin"), os.path.join(HERE, "lib"), os.path.join(HERE, "lib", "zeroute"),
          os.path.join(HERE, "..", "..", "build"), "/usr/local/bin", "/usr/local/lib", "/usr/local/lib/zeroute",
          "/usr/bin", "/usr/lib/zeroute", "/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/zeroute"]


def find(name):
    """The path of a file; FileNotFoundError names where it was looked for."""
    for place in PLACES:
        path = os.path.normpath(os.path.join(place, name))
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"zeroute: {name} is not found; looked in: {', '.join(map(os.path.normpath, PLACES))}")


def version():
    """As the wheel names it, or the Makefile of the source folder."""
    try:
        from importlib.metadata import PackageNotFoundError, version as of
        return of("zeroute")
    except PackageNotFoundError:
        pass
    try:
        with open(os.path.join(HERE, "..", "..", "Makefile"), encoding="utf-8") as makefile:
            return re.search(r"^VERSION := (\S+)", makefile.read(), re.M).group(1)
    except (OSError, AttributeError):
        return "unknown"
