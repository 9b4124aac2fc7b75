"""Unpacks wheels into a SYCL runtime's folder: what running programs and compiling host code needs.

unpack.py DIR WHEEL...   fills DIR/lib, DIR/include and DIR/site. Of what the wheels hold, the compiler's
parts and device libraries stay out: 80 MiB instead of 900 for the newest.
"""

import os
import re
import sys
import zipfile

LEFT_OUT = re.compile(
    r"icx-lto|libsycl-jit|libonnxruntime|libsycl-preview|libur_sanitizer|libqkmalloc|trace_collector"
    r"|libpstloffload|libur_adapter_opencl|libpi_opencl|_adapter_cuda|_adapter_hip|/tests/elementwise/"
)


def target(name):
    """Where a member of a wheel goes below DIR; None: not needed."""
    if LEFT_OUT.search(name) or name.endswith("/"):
        return None
    data = re.match(r"[^/]+\.data/(?:data|purelib|platlib)/(.*)", name)
    inner = data.group(1) if data else name
    if re.fullmatch(r"lib/[^/]+\.so[.0-9]*", inner) or inner.startswith("include/"):
        return inner
    if inner.startswith(("dpctl/", "dpctl-")):
        return "site/" + inner
    return None


def unpack(folder, wheel):
    with zipfile.ZipFile(wheel) as z:
        seen = {}
        for info in sorted(z.infolist(), key=lambda i: -len(i.filename)):
            to = target(info.filename)
            if to is None:
                continue
            path = os.path.join(folder, to)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # Wheels have no links: libx.so, libx.so.1 and libx.so.1.2 are three copies of one file.
            key = (os.path.dirname(path), info.CRC, info.file_size)
            if ".so" in to and key in seen:
                os.symlink(seen[key], path)
                continue
            with z.open(info) as src, open(path, "wb") as dst:
                while chunk := src.read(1 << 20):
                    dst.write(chunk)
            seen[key] = os.path.basename(path)


def main():
    for wheel in sys.argv[2:]:
        unpack(sys.argv[1], wheel)


main()
