"""python -m zeroute ...: the command zeroute, of which this process becomes one."""

import os
import sys

from . import _files


def main():
    try:
        path = _files.find("zeroute")
    except FileNotFoundError as e:
        sys.exit(str(e))
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
