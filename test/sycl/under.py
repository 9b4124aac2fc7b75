"""under.py LIBRARY SETTINGS PROGRAM...: runs a Python program under the preload, on the bed that this runs on."""
import os
import sys

os.environ["LD_PRELOAD"] = ":".join(filter(None, (sys.argv[1], os.environ.get("LD_PRELOAD"))))
os.environ["ZEROUTE_CONF"] = sys.argv[2]
os.execv(sys.executable, [sys.executable, *sys.argv[3:]])
