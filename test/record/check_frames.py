"""Compares the stacks of marks that frames.py has made with what they say: check_frames.py RECORD."""

import sys

from record import Record

r = Record(sys.argv[1])
marks = [e for e in r.events if e.type == "MARK"]
wrong = 0
for e in marks:
    # ctypes passes through no Python frame of its own; a mark's text is cut at 255 bytes
    got = ",".join(f"{line}{name.split('.')[-1][:3]}" for file, name, line, _ in r.lines(e.stack))[:255]
    if got != e.text:
        wrong += 1
        if wrong < 4:
            print("got:     ", got)
            print("expected:", e.text)
    elif r.lines(e.stack) and not r.stack[e.stack][3] and not r.lines(e.stack)[-1][3]:
        wrong += 1
        print("the outermost frame was not called from C:", r.lines(e.stack))
print(f"{len(marks)} marks, {wrong} wrong; {r.texts.get('python')}")
sys.exit(wrong != 0 or len(marks) < 90)
