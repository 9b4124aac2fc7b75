"""Checks of what `zeroute report` writes against the events of the record themselves (its CSV).

  report_check.py torch PICKLE CSV      the snapshot, as PyTorch's viewer goes through it
  report_check.py perfetto JSON CSV     counters and slices
  report_check.py page HTML CSV JSON    the page in a browser: elements are clicked, figures compared
  report_check.py ranks HTML JSON       several processes side by side
  report_check.py figures HTML JSON TEXT  every figure on the page is that of --json, written as in --text
  report_check.py diff HTML JSON        two records compared
  report_check.py opens HTML            no error, whatever is clicked
"""
import csv
import json
import os
import pickle
import pickletools
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
ALLOCATED = ("device", "shared", "physical")


def events_of(path):
    with open(path, newline="") as f:
        return [dict(row, time_ns=int(row["time_ns"]), bytes=int(row["bytes"])) for row in csv.DictReader(f)]


def levels(events):
    """(time, allocated bytes by card) after every event: a plain list of blocks."""
    live, by_card, out = {}, {}, []
    for e in events:
        key = (e["address"], e["kind"] if e["kind"] in ("physical", "virtual", "mapped") else "")
        if e["event"] == "alloc" and e["kind"] in ALLOCATED:
            assert key not in live, f"{key} is live twice"
            live[key] = (e["card"], e["bytes"])
            by_card[e["card"]] = by_card.get(e["card"], 0) + e["bytes"]
        elif e["event"] == "free" and key in live:
            card, size = live.pop(key)
            by_card[card] -= size
        out.append((e["time_ns"], dict(by_card)))
    return out, live


def same(what, got, expected):
    assert got == expected, f"{what}: {got}, expected {expected}"


# --- the snapshot ------------------------------------------------------------------------------------------------

# What the viewer's own unpickler knows.
OPCODES = {"PROTO", "FRAME", "APPEND", "APPENDS", "BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT",
           "EMPTY_LIST", "LONG1", "MARK", "MEMOIZE", "SETITEMS", "SHORT_BINUNICODE", "BINUNICODE", "STOP", "TUPLE2",
           "NEWFALSE", "NEWTRUE", "EMPTY_TUPLE"}


def torch(path, csv_path):
    with open(path, "rb") as f:
        data = f.read()
    unknown = {op.name for op, _, _ in pickletools.genops(data)} - OPCODES
    assert not unknown, f"the viewer cannot read {unknown}"
    snapshot = pickle.loads(data)
    _, left = levels(events_of(csv_path))
    blocks = 0
    for s in snapshot["segments"]:
        same("blocks of a segment", sum(b["size"] for b in s["blocks"]), s["total_size"])
        at = s["address"]
        for b in s["blocks"]:
            same("address of a block", b["address"], at)
            at += b["size"]
            blocks += b["state"] == "active_allocated"
            assert b["state"] in ("active_allocated", "inactive")
            for frame in b["frames"]:
                assert set(frame) == {"filename", "line", "name"}
    same("live blocks", blocks, len(left))
    # Backwards from the end, as the viewer does: every block lies in a segment at every step.
    for device, trace in enumerate(snapshot["device_traces"]):
        segments = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
        live = {b["address"]: b["size"] for s in snapshot["segments"] if s["device"] == device
                for b in s["blocks"] if b["state"] == "active_allocated"}
        time = None
        for e in reversed(trace):
            assert time is None or e["time_us"] <= time, "not in the order of time"
            time = e["time_us"]
            if e["action"] == "alloc":
                same("size of a block", live.pop(e["addr"]), e["size"])
            elif e["action"] == "free_completed":
                assert e["addr"] not in live
                live[e["addr"]] = e["size"]
            elif e["action"] == "free_requested":
                assert e["addr"] in live
            elif e["action"] == "segment_alloc":
                same("size of a segment", segments.pop(e["addr"]), e["size"])
            elif e["action"] == "segment_free":
                assert e["addr"] not in segments
                segments[e["addr"]] = e["size"]
            elif e["action"] == "oom":
                assert "device_free" in e
            else:
                raise AssertionError(e["action"])
            if len(live) < 200:
                for address, size in live.items():
                    assert any(s <= address and address + size <= s + n for s, n in segments.items()), \
                        f"{address:#x} is in no segment"
        assert not live and not segments, "something is left at the beginning"


# --- trace events ------------------------------------------------------------------------------------------------

def perfetto(path, csv_path):
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    steps, left = levels(events_of(csv_path))
    cards = {card for _, by_card in steps for card in by_card}
    for card in cards:
        counters = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["name"] == f"allocated, card {card}"]
        same(f"peak of card {card}", max(counters), max(by_card.get(card, 0) for _, by_card in steps))
    begun = {e["id"]: e for e in events if e["ph"] == "b"}
    ended = {e["id"]: e for e in events if e["ph"] == "e"}
    same("slices", set(begun), set(ended))
    assert all(ended[i]["ts"] >= begun[i]["ts"] for i in begun)
    same("slices that never end", sum(e["args"].get("freed") is False and e["args"]["kind"] in ALLOCATED
                                      for e in begun.values()), len(left))


# --- the page ----------------------------------------------------------------------------------------------------

def page(path, csv_path, json_path):
    from browser import Page
    steps, left = levels(events_of(csv_path))
    with open(json_path) as f:
        process = json.load(f)["processes"][0]
    total = [(t, sum(by_card.values())) for t, by_card in steps]
    p = Page("file://" + os.path.abspath(path))
    try:
        same("requests", [r for r in p.requests if not r.startswith("file://")], [])
        figure = lambda name: p.js(f"Number(document.querySelector('[data-figure={name}]').dataset.value)")
        same("peak", figure("peak"), max(v for _, v in total))
        same("peak of --json", process["peak"]["bytes"], max(v for _, v in total))
        same("never freed", figure("left"), process["never_freed"]["bytes"])
        same("failures", figure("failures"), process["counts"]["fail"])
        same("allocations", figure("allocations"), process["counts"]["alloc"])
        same("marks in the chart", p.js("document.querySelectorAll('#timeline [data-mark]').length"),
             min(400, process["counts"]["mark"]))
        # A moment: what the chart says of it is what the list of blocks says.
        for at in (0.2, 0.5, 0.9):
            p.click("#timeline svg", (at, 0.4))
            t, shown = p.js("(d => [Number(d.time), Number(d.total)])(document.querySelector('#moment').dataset)")
            assert shown in {v for when, v in total if when == t}, f"{shown} at {t}"
            rows = p.js("state.chosen") is not None and p.js(
                "liveAt(state.chosen).reduce((a, b) => a + b, 0)")
            same("rows of the moment", rows, shown)
        p.click("#to-peak")
        same("the peak", p.js("Number(document.querySelector('#moment').dataset.total)"), max(v for _, v in total))
        # Hovering tells, zooming shows less and back again.
        p.hover("#timeline svg", (0.6, 0.4))
        assert p.js("!tip.hidden && tip.textContent.includes('block')")
        p.drag("#timeline svg", (0.3, 0.4), (0.6, 0.4))
        whole = p.js("p.duration")
        assert p.js("state.to - state.from") < whole / 2
        p.click("#zoom-out")
        p.click("#zoom-all")
        same("the whole", p.js("[state.from, state.to]"), [0, whole])
        # Every way to stack sums up to the same.
        for group in ("card", "caller", "size"):
            p.click(f"#stack-by [data-choice={group}]")
            assert p.js("document.querySelectorAll('#timeline [data-layer]').length") >= 1
            same(f"sum by {group}", p.js(f"p.by.{group}.series.reduce((a, s) => a + s[peakSample()], 0)"),
                 max(v for _, v in total))
        # Flame graphs weigh what they say.
        weigh = lambda name: (p.click(f"#flame-of [data-choice={name}]"),
                              p.js("Number(document.querySelector('#flame').dataset.total)"))[1]
        same("flame graph of the peak", weigh("peak"), process["peak"]["bytes"])
        same("flame graph of moment", weigh("moment"), process["peak"]["bytes"])
        if process["never_freed"]["bytes"]:
            same("flame graph of leaks", weigh("left"), process["never_freed"]["bytes"])
        if process["counts"]["fail"]:
            same("flame graph of failures", weigh("failures"), process["counts"]["fail"])
        same("flame graph of allocations", weigh("allocations"), process["counts"]["alloc"])
        weigh("peak")
        deepest = "#flame g:last-of-type"
        name, value = p.js(f"(d => [d.frame, Number(d.value)])(document.querySelector('{deepest}').dataset)")
        p.click(deepest)
        assert p.js("document.querySelectorAll('#flame g.dim').length") >= 1
        same("frame after a click", p.js("(g => [g.dataset.frame, Number(g.dataset.value)])"
                                         "(document.querySelector('#flame g:not(.dim)'))"), [name, value])
        p.click("#flame g.dim")
        same("frames after a click on all", p.js("document.querySelectorAll('#flame g.dim').length"), 0)
        # A stack opens, outermost frame first.
        stack = process["peak_stacks"][0]
        p.click("#flame-table details summary")
        p.wait("document.querySelector('#flame-table ol.stack')")
        lines = p.js("[...document.querySelectorAll('#flame-table ol.stack')[0].children].map((x) => x.textContent)")
        same("frames of the largest stack", len(lines), len(stack["frames"]))
        for line, frame in zip(lines, stack["frames"]):
            assert frame["name"].split("(")[0] in line, f"{frame['name']} is not in {line}"
        same("largest block", p.js("Number(document.querySelector('#largest tr[data-size]').dataset.size)"),
             process["largest_blocks"][0]["bytes"])
        # A phone: nothing is wider than the screen.
        p.size(390, 800)
        p.wait("document.querySelector('#timeline svg').getBoundingClientRect().width <= 390")
        assert p.js("document.documentElement.scrollWidth") <= 390, "wider than a phone"
        same("errors", p.errors, [])
    finally:
        p.close()


UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]


def scaled(n, factor, most, units):
    """As tools/common/text.c."""
    value, unit = float(n), 0
    while value >= most and unit < len(units) - 1:
        value, unit = value / factor, unit + 1
    if unit == 0:
        return f"{n} {units[0]}"
    return ("%.2f %s" if value < 9.995 else "%.1f %s" if value < 99.95 else "%.0f %s") % (value, units[unit])


def rows_of(p, weight):
    """Name, bytes and blocks of every row of the table below the flame graph."""
    p.click(f"#flame-of [data-choice={weight}]")
    return p.js(f"(w => w.map((v, i) => [p.names[i], v, p.weights.{weight}_blocks[i]]).slice(0, -1)"
                f".filter((r) => r[1]))(p.weights.{weight})")


def figures(path, json_path, text_path):
    from browser import Page
    import random
    import re
    with open(json_path) as f:
        x = json.load(f)["processes"][0]
    with open(text_path) as f:
        text = f.read()
    p = Page("file://" + os.path.abspath(path))
    try:
        # The page and the terminal write a number with the same digits, at every size.
        random.seed(1)
        numbers = [random.randrange(2 ** random.randrange(1, 52)) for _ in range(500)]
        numbers += [k << (10 * u) >> s for k in range(1, 2050, 7) for u in (1, 2, 3) for s in (0, 3, 5)]
        for n, shown in zip(numbers, p.js(f"{numbers}.map((n) => bytes(n))")):
            same(f"bytes({n})", shown, scaled(n, 1024, 1023.995, UNITS) if n else "0")
        short = [n % 120_000_000_000 for n in numbers]
        for n, shown in zip(short, p.js(f"{short}.map((n) => time(n))")):
            same(f"time({n})", shown, scaled(n, 1000, 999.5, ["ns", "us", "ms", "s"]) if n else "0")
        # It opens where memory was refused.
        if "refusal" in x:
            same("moment", p.js("Number(document.querySelector('#moment').dataset.total)"),
                 x["refusal"]["allocated_bytes"])
            same("refusal", p.js("[p.refusal.time, p.refusal.size, p.refusal.bytes, p.refusal.blocks]"),
                 [x["refusal"][k] for k in ("time_ns", "bytes", "allocated_bytes", "allocated_blocks")])
        same("peak", p.js("[p.peak.bytes, p.peak.blocks, p.peak.at]"),
             [x["peak"][k] for k in ("bytes", "blocks", "time_ns")])
        same("kinds", p.js("p.kinds.map(([k, ...v]) => [KINDS[k], ...v])"),
             [[k["kind"], k["allocations"], k["left_bytes"], k["left_blocks"]] for k in x["kinds"]])
        same("peaks", p.js("p.peaks.map(([c, k, b, at, m]) => [c, KINDS[k], b, at, m])"),
             [[k.get("card", 255), k["kind"], k["bytes"], k["time_ns"], k.get("card_bytes", 0)] for k in x["peaks"]])
        # What is in a card is what its list adds up to, in bytes and in blocks.
        for weight, key, bytes_, blocks in (
                ("peak", "peak_stacks", x["peak"]["bytes"], x["peak"]["blocks"]),
                ("left", "never_freed_stacks", x["never_freed"]["bytes"], x["never_freed"]["blocks"]),
                ("refused", "refusal_stacks", x.get("refusal", {}).get("allocated_bytes", 0),
                 x.get("refusal", {}).get("allocated_blocks", 0))):
            if not bytes_:
                continue
            rows = rows_of(p, weight)
            same(key, sorted(rows), sorted([s["name"], s["bytes"], s["blocks"]] for s in x[key]))
            same(f"bytes of {key}", sum(r[1] for r in rows), bytes_)
            same(f"blocks of {key}", sum(r[2] for r in rows), blocks)
            assert len({r[0] for r in rows}) == len(rows), f"rows of one name: {[r[0] for r in rows]}"
            # The tree of the same opens down to where stacks part, and adds up.
            p.click("#flame-as [data-choice=tree]")
            same("root of the tree", p.js("Number(document.querySelector('#flame-tree tr').dataset.value)"), bytes_)
            p.js("(() => { for (let b; (b = document.querySelector('#flame-tree [aria-expanded=false]'));) "
                 "b.click(); })()")
            leaves = p.js("[...document.querySelectorAll('#flame-tree tr')].filter((r) => "
                          "!r.querySelector('button')).reduce((a, r) => a + Number(r.dataset.value), 0)")
            same("leaves of the tree", leaves, bytes_)
            p.click("#flame-as [data-choice=flame]")
        if "host" in x:
            same("host memory", p.js("[p.host.times.length, p.host.lost_most, p.host.mirror_most]"),
                 [x["host"]["samples"], x["host"]["lost_peak_bytes"], x["host"].get("mirror_peak_bytes", 0)])
            same("peak of the line", p.js("Math.max(...p.host.lost)"), x["host"]["lost_peak_bytes"])
        same("sizes", p.js("p.sizes.filter((s) => s[1] || s[4]).map((s) => s.slice(0, 6))"),
             [[s["size"], s["allocations"], s["bytes"], s["most_live_bytes"], s["failures"], s["reused"]]
              for s in x["sizes"]])
        same("sizes add up", sum(s["allocations"] for s in x["sizes"]),
             sum(k["allocations"] for k in x["kinds"] if k["kind"] in ALLOCATED))
        same("largest", p.js("p.largest.map((b) => b[0])"), [b["bytes"] for b in x["largest_blocks"]])
        same("failures", p.js("p.failures.map((f) => [f[0], f[1], f[4], f[5], f[6]])"),
             [[f["time_ns"], f["bytes"], f["code"], f["refused_by"], f["entry"]] for f in x["failures"]][:500])
        # Every figure of the terminal is on the page, digit by digit.
        p.click("#to-peak")
        shown = p.js("(() => { document.querySelectorAll('button.link').forEach((b) => "
                     "/^show /.test(b.textContent) && b.click()); return document.body.innerText; })()")
        for weight in p.js("[...document.querySelectorAll('#flame-of [data-choice]')].map((b) => b.dataset.choice)"):
            p.click(f"#flame-of [data-choice={weight}]")
            shown += p.js("(() => { document.querySelectorAll('#flame-table button.link').forEach((b) => "
                          "/^show /.test(b.textContent) && b.click()); "
                          "return document.querySelector('#flame-table').innerText; })()")
        on_page = set(re.findall(r"\d[\d.,:]* (?:[KMGT]?i?B|ns|us|ms|s|min|h|%)\b|\d[\d.,:]* %", shown))
        for figure in re.findall(r"\d[\d.,:]* (?:[KMGT]?i?B|ns|us|ms|s|min|h)\b|\d[\d.,:]* %", text):
            assert figure in on_page, f"{figure} is in the terminal, and not on the page"
        same("errors", p.errors, [])
    finally:
        p.close()


def ranks(path, json_path):
    from browser import Page
    with open(json_path) as f:
        document = json.load(f)
    processes, joint = document["processes"], document["joint"]
    p = Page("file://" + os.path.abspath(path))
    try:
        figure = lambda name: p.js(f"Number(document.querySelector('[data-figure={name}]').dataset.value)")
        same("joint peak", figure("joint"), joint["peak_bytes"])
        same("sum of the peaks", figure("peaks"), sum(x["peak"]["bytes"] for x in processes))
        same("shares of the joint peak", sum(joint["at_peak_bytes"]), joint["peak_bytes"])
        assert max(x["peak"]["bytes"] for x in processes) <= joint["peak_bytes"] <= joint["peaks_bytes"]
        same("processes", p.js("document.querySelectorAll('.rank').length"), len(processes))
        for i, process in enumerate(processes):
            p.click(f".rank[data-rank='{i}']")
            same("peak", p.js("Number(document.querySelector('[data-figure=peak]').dataset.value)"),
                 process["peak"]["bytes"])
            assert process["name"] in p.js("document.querySelector('#about').textContent")
        same("errors", p.errors, [])
    finally:
        p.close()


def diff(path, json_path):
    """Rows are those of --json, both flame graphs add up to them, and both together to the change of the totals."""
    from browser import Page
    with open(json_path) as f:
        x = json.load(f)
    p = Page("file://" + os.path.abspath(path))
    try:
        for weight, key in (("peak", "peak_bytes"), ("left", "never_freed_bytes"), ("allocations", "allocations"),
                            ("failures", "failures")):
            rows = x[weight]
            same(f"sum of {weight}", sum(r["new"] - r["old"] for r in rows), x["new"][key] - x["old"][key])
            same(f"figure of {weight}", p.js(f"(d => [Number(d.old), Number(d.new)])(document.querySelector("
                                             f"'[data-figure={weight}]').dataset)"), [x["old"][key], x["new"][key]])
            in_bytes = key.endswith("bytes")
            text = lambda n: (scaled(n, 1024, 1023.995, UNITS) if n else "0") if in_bytes else f"{n:,}"
            changed = lambda n: f"{'+' if n > 0 else '-'}{text(abs(n))}" if n else "unchanged"
            old, new = x["old"][key], x["new"][key]
            same(f"card of {weight}", p.js(f"[...document.querySelectorAll('[data-figure={weight}] > *')].slice(1)"
                                           ".map((e) => e.textContent)"),
                 [changed(new - old), f"{text(old)} \u2192 {text(new)}"])
            if not p.js(f"document.querySelectorAll('#weight [data-choice={weight}]').length"):
                same(f"rows of {weight}", rows, [])
                continue
            p.click(f"#weight [data-choice={weight}]")
            shown = p.js("(() => { document.querySelectorAll('#stacks button.link').forEach((b) => /^show /.test("
                         "b.textContent) && b.click()); return [...document.querySelectorAll('#stacks tbody tr')]"
                         ".map((r) => Number(r.dataset.change)); })()")
            same(f"rows of {weight}", shown, [r["new"] - r["old"] for r in rows])
            same(f"texts of {weight}", p.js("[...document.querySelectorAll('#stacks tbody tr')].map((r) => "
                                            "[0, 2, 3].map((i) => r.cells[i].textContent))"),
                 [[changed(r["new"] - r["old"]), text(r["old"]), text(r["new"])] for r in rows])
            for way, sign in (("grew", 1), ("shrank", -1)):
                p.click(f"#way [data-choice={way}]")
                same(f"what {way} of {weight}", p.js("Number(document.querySelector('#flame').dataset.total)"),
                     sum(max(0, sign * (r["new"] - r["old"])) for r in rows))
        same("errors", p.errors, [])
    finally:
        p.close()


def opens(path):
    """Whatever is in it: no error, also when everything is clicked."""
    from browser import Page
    p = Page("file://" + os.path.abspath(path))
    try:
        for selector in p.js("[...document.querySelectorAll('[data-choice]')].map((b) => "
                             "`#${b.parentNode.id} [data-choice=${b.dataset.choice}]`)") + ["#zoom-in", "#zoom-all"]:
            p.click(selector)
        same("errors", p.errors, [])
    finally:
        p.close()


if __name__ == "__main__":
    {"torch": torch, "perfetto": perfetto, "page": page, "ranks": ranks, "opens": opens, "figures": figures,
     "diff": diff}[sys.argv[1]](*sys.argv[2:])
