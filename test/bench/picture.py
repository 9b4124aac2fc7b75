"""Draws build/bench.json as an SVG: no library, text that can be selected, light and dark by the reader's setting."""

import math
from xml.sax.saxutils import escape

from bench import size_text

# name -> (words, colour on light, colour on dark, dashes, width): hues that differ for every kind of eye (Okabe, Ito)
LINES = {
    "zeroute": ("zeroute", "#0072b2", "#56b4e9", "", 3),
    "zeroute pool": ("zeroute's pool", "#0072b2", "#56b4e9", "5 3", 2),
    "umf disjoint": ("UMF disjoint pool", "#d55e00", "#ff9e4a", "", 2),
    "driver": ("the driver", "#d55e00", "#ff9e4a", "", 2),
    "mimalloc": ("mimalloc", "#b0568a", "#e7a5c9", "", 1.3),
    "jemalloc": ("jemalloc", "#00785a", "#3fcfa4", "", 1.3),
    "glibc": ("glibc", "#6e7781", "#8b949e", "", 1.3),
}
WIDTH, LEFT, TOP, GAP, PLOT_W, PLOT_H, LABELS = 980, 58, 86, 62, 300, 210, 128
LOWEST = 1.0


def from_cache(figures, pattern, threads):
    lines = {}
    for f in figures:
        if f.get("pattern") == pattern and f.get("threads") == threads and f["allocator"] in LINES:
            lines.setdefault(f["allocator"], {})[f["size"]] = f["ns"]
    return lines


def from_entry(figures, bed, pattern, threads):
    lines = {}
    for f in figures:
        if (f["bed"], f["pattern"], f["threads"]) == (bed, pattern, threads):
            for name in ("driver", "zeroute"):
                lines.setdefault(name, {})[f["size"]] = f["ns"][name]
    return lines


def panels(results):
    """(title, lines) of each panel that there are figures for."""
    cache, entry = (results.get(name, {}).get("figures", []) for name in ("cache", "entry"))
    found = [("The allocator alone, one thread", from_cache(cache, "live", 1)),
             ("The allocator alone, two threads", from_cache(cache, "live", 2)),
             ("zeMemAllocDevice and zeMemFree, Intel's driver, one card", from_entry(entry, "intel", "live", 1)),
             ("The same with two cards in the context", from_entry(entry, "intel2", "live", 1))]
    return [(title, lines) for title, lines in found if lines]


def spread(wanted, least, low, high):
    """Moves label positions apart, in order, as little as a sweep down and one up need."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    at = [wanted[i] for i in order]
    for i in range(1, len(at)):
        at[i] = max(at[i], at[i - 1] + least)
    if at and at[-1] > high:
        at[-1] = high
        for i in range(len(at) - 2, -1, -1):
            at[i] = min(at[i], at[i + 1] - least)
    return dict(zip(order, (max(a, low) for a in at)))


def ns_text(ns):
    return f"{ns / 1000:.1f} µs" if ns >= 1000 else f"{ns:.0f} ns"


def panel(out, title, lines, x0, y0, highest):
    sizes = sorted({size for points in lines.values() for size in points})
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])

    def x(size):
        return x0 + PLOT_W * (math.log2(size) - first) / ((last - first) or 1)

    def y(ns):
        return y0 + PLOT_H * (1 - math.log10(max(ns, LOWEST) / LOWEST) / math.log10(highest / LOWEST))

    out.append(f'<text class="ink strong" x="{x0}" y="{y0 - 12}">{escape(title)}</text>')
    for power in range(int(math.log10(highest)) + 1):
        at = y(10 ** power)
        out.append(f'<line class="grid" x1="{x0}" y1="{at:.1f}" x2="{x0 + PLOT_W}" y2="{at:.1f}"/>'
                   f'<text class="soft" x="{x0 - 7}" y="{at + 4:.1f}" text-anchor="end">'
                   f'{["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms"][power]}</text>')
    shown = -1e9
    for size in sizes:
        at = x(size)
        out.append(f'<line class="grid" x1="{at:.1f}" y1="{y0 + PLOT_H}" x2="{at:.1f}" y2="{y0 + PLOT_H + 4}"/>')
        if at - shown >= 52 and (at <= x0 + PLOT_W - 52 or size == sizes[-1]):
            out.append(f'<text class="soft" x="{at:.1f}" y="{y0 + PLOT_H + 18}" text-anchor="middle">'
                       f'{size_text(size)}</text>')
            shown = at
    names = [name for name in LINES if name in lines]
    ends = spread([y(lines[n][max(lines[n])]) for n in names], 15, y0, y0 + PLOT_H)
    for i, name in reversed(list(enumerate(names))):
        words, _, _, dashes, width = LINES[name]
        points = [(x(size), y(ns)) for size, ns in sorted(lines[name].items())]
        mark = name.replace(" ", "-")
        out.append(f'<polyline class="line {mark}" stroke-width="{width}"'
                   + (f' stroke-dasharray="{dashes}"' if dashes else "")
                   + f' points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>')
        for a, b in points:
            out.append(f'<circle class="dot {mark}" cx="{a:.1f}" cy="{b:.1f}" r="{1.2 + width / 2:.1f}"/>')
        a, b = points[-1]
        out.append(f'<path class="leader {mark}" d="M{a + 6:.1f},{b:.1f}L{a + 16:.1f},{ends[i]:.1f}"/>'
                   f'<text class="{mark}" x="{a + 20:.1f}" y="{ends[i] + 4:.1f}">{escape(words)}</text>')


def draw(results, path):
    """False: there is nothing to draw yet."""
    found = panels(results)
    if not found:
        return False
    highest = 10 ** math.ceil(math.log10(max(ns for _, lines in found for p in lines.values() for ns in p.values())))
    rows = (len(found) + 1) // 2
    height = TOP + rows * (PLOT_H + GAP) + 24
    step = PLOT_W + LABELS + LEFT
    machine = next(r["machine"] for r in results.values() if isinstance(r, dict) and "machine" in r)
    style = ["text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}",
             ".title{font-size:17px;font-weight:600}", ".strong{font-size:13px;font-weight:600}",
             ".line{fill:none;stroke-linejoin:round}", ".leader{fill:none;stroke-width:1;opacity:.5}",
             ".card{fill:#ffffff;stroke:#d0d7de}", ".ink{fill:#1f2328}",
             ".soft{fill:#59636e}", ".grid{stroke:#e3e7eb}"]
    dark = [".card{fill:#0d1117;stroke:#30363d}", ".ink{fill:#f0f6fc}", ".soft{fill:#9198a1}", ".grid{stroke:#262c36}"]
    for name, (_, light, night, _, _) in LINES.items():
        mark = name.replace(" ", "-")
        for rules, colour in ((style, light), (dark, night)):
            rules.append(f"text.{mark},.dot.{mark}{{fill:{colour}}}.line.{mark},.leader.{mark}{{stroke:{colour}}}")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'role="img" aria-labelledby="t d">',
           '<title id="t">Time of an allocation and a free, by size</title>',
           '<desc id="d">Logarithmic scale; zeroute beside other allocators, and beside the driver that it stands in '
           'front of.</desc>',
           "<style>" + "".join(style) + "@media(prefers-color-scheme:dark){" + "".join(dark) + "}</style>",
           f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
           f'<text class="ink title" x="{LEFT - 34}" y="32">Time of an allocation and a free, by size</text>',
           f'<text class="soft" x="{LEFT - 34}" y="52">1000 live blocks, random replacement, ns per thread on a '
           'logarithmic scale; lower is better</text>']
    for i, (title, lines) in enumerate(found):
        panel(out, title, lines, LEFT + i % 2 * step, TOP + 14 + i // 2 * (PLOT_H + GAP), highest)
    out.append(f'<text class="soft" x="{LEFT - 34}" y="{height - 16}">make bench · {escape(machine)}</text></svg>')
    with open(path, "w", encoding="utf-8") as svg:
        svg.write("\n".join(out) + "\n")
    return True
