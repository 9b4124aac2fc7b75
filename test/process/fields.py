"""Compares the table of fields in doc/statistics.md with what a process shows, both ways.

Usage: fields.py BUILD. A row's pattern may have {a,b} and *, and words in capitals for what differs between machines.
What a process shows is taken from `zeroute run --json`; a field that is absent until something sets it, from the table
in src/stats/fields.def.
"""
import json
import os
import re
import subprocess
import sys
import tempfile


RUNS = [["--preset", "reroute", "--check", "all", "--", "demo", "2"],
        ["--preset", "mitigate", "--", "test/process/books"],
        ["--preset", "observe", "--limit", "1MiB", "--", "test/process/books"]]  # which fails, and counts that


def shown_by_processes(build):
    fields = set()
    for run in RUNS:
        program = run.index("--") + 1
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            subprocess.run([build + "/zeroute", "run", "--sim=devices:2,mirror:on", "--no-summary", "--json", out.name,
                            *run[:program], build + "/" + run[program], *run[program + 1:]],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            fields |= set(json.load(open(out.name))["processes"][0]["fields"])
    return fields


def absent_until_set():
    text = open("src/stats/fields.def").read()
    cards = re.findall(r'^ZR_CARD\(\w+, "([^"]+)"', text, re.M)
    plain = re.findall(r'^ZR_(?:COUNTER|GAUGE|TEXT)\(\w+, "([^"]+)"', text, re.M)
    return set(plain) | {"device.0." + name for name in cards}


def braces(pattern):
    found = re.search(r"\{([^{}]*)\}", pattern)
    if not found:
        return [pattern]
    return [whole for part in found.group(1).split(",")
            for whole in braces(pattern[:found.start()] + part + pattern[found.end():])]


def documented():
    """{pattern: its regular expression}, of the first cells of the table of fields and of what a row adds."""
    lines = iter(open("doc/statistics.md"))
    patterns = {}
    for line in lines:
        if line.startswith("| fields |"):
            break
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            break
        first = line.split("|")[1]
        family = {quoted.split(".")[0] for quoted in re.findall(r"`([^`]+)`", first)}
        for quoted in re.findall(r"`([A-Za-z0-9_.{},*]+)`", line):
            if f"`{quoted}`" in first or ("." in quoted and quoted.split(".")[0] in family):
                for pattern in braces(quoted):
                    any_word = re.sub(r"\\\*|\b[A-Z]+\b", ".+", re.escape(pattern))
                    patterns[pattern] = re.compile(re.sub(r"4KiB$", ".+", any_word) + "$")
    return patterns


def exists(pattern, expression, fields):
    """Of GROUP.NAME with a name in capitals, which only a process that used it shows, the group is enough."""
    group, _, name = pattern.rpartition(".")
    return any(map(expression.match, fields)) or (name.isupper() and group in fields)


def main():
    fields = shown_by_processes(os.path.relpath(sys.argv[1])) | absent_until_set()
    patterns = documented()
    wrong = [f"no field of the program is {pattern}, which doc/statistics.md names"
             for pattern, expression in patterns.items() if not exists(pattern, expression, fields)]
    wrong += [f"doc/statistics.md does not name {field}"
              for field in sorted(fields) if not any(e.match(field) for e in patterns.values())]
    print("\n".join(wrong))
    return len(wrong) > 0 or len(fields) < 100


sys.exit(main())
