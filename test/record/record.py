"""Reads a record (include/zeroute/record.h) for tests: a second reader, written from the format page alone."""

import struct
import sys

EVENTS = [None, "ALLOC", "FREE", "BACK", "FAIL", "RESERVE", "RELEASE", "TRIM", "RESIDENT", "EVICT", "EXPORT", "MAP",
          "UNMAP", "CONTEXT", "CONTEXT_GO", "MARK"]
STACK, CODE, MODULE, THREAD, CARD, TEXT = range(64, 70)
KINDS = ["device", "shared", "physical", "host", "virtual", "mapped", "imported"]
REFUSERS = ["driver", "limit", "host_floor", "inject", "zeroute"]
TEXTS = [None, "command", "settings", "variables", "entries", "vias", "directory", "python"]
HIT, PIECE, CACHED, PEER, SKIPPED, ANSWERED = 1, 2, 4, 8, 16, 32
FIRST_ON_TIES = ("FREE", "RELEASE", "UNMAP")


class Event:
    __slots__ = ("type", "stack", "time", "address", "size", "aux", "code", "duration", "entry", "via", "kind", "card",
                 "refuser", "flags", "text", "thread")

    def __repr__(self):
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


class Record:
    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        (magic, self.major, self.minor, header, chunk, self.pid, self.process_start, self.start, self.start_real,
         self.end, self.lost_events, self.lost_stacks, self.flags, self.stacks_mode, version,
         run) = struct.unpack_from("<8sHHIIIQQQQQQII16s40s", data)
        if magic != b"ZRRECORD":
            raise ValueError(f"{path}: not a record")
        self.run_id = run.split(b"\0")[0].decode()
        self.texts, self.stack, self.code, self.modules, self.threads, self.cards = {}, {}, {}, [], {}, {}
        self.events = []
        chunks = []
        for at in range(header, len(data) - chunk + 1, chunk):
            magic, thread, used, sequence = struct.unpack_from("<IIQQ", data, at)
            if magic == 0x4b4e4843:
                chunks.append((thread, sequence, at, used))
        for thread, _, at, used in sorted(chunks):
            self._chunk(data, at + 24, at + used, thread)
        self.vias = self.texts["vias"].split("\0")
        self.entries = self.texts["entries"].split("\0")
        order = {}
        for e in self.events:
            e.entry, e.via, e.kind = self.entries[e.entry], self.vias[e.via], KINDS[e.kind]
            e.refuser = REFUSERS[e.refuser]
        self.events.sort(key=lambda e: (e.time, e.type not in FIRST_ON_TIES))

    def _chunk(self, data, at, end, thread):
        while at < end:
            kind, words, ident = struct.unpack_from("<HHI", data, at)
            if kind < 64:
                self._event(data, at, words, kind, ident, thread)
            elif kind == STACK:
                time, native, python, ncut, pcut, _ = struct.unpack_from("<QHHBBH", data, at + 8)
                frames = struct.unpack_from(f"<{native}Q", data, at + 24)
                py = struct.unpack_from(f"<{2 * python}I", data, at + 24 + 8 * native)
                self.stack[ident] = (frames, list(zip(py[::2], py[1::2])), ncut, pcut, time)
            elif kind == CODE:
                first, nfile, nname, ntable, cut = struct.unpack_from("<IHHII", data, at + 8)
                p = at + 24
                self.code[ident] = (data[p:p + nfile].decode(), data[p + nfile:p + nfile + nname].decode(), first,
                                    data[p + nfile + nname:p + nfile + nname + ntable])
            elif kind == MODULE:
                time, start, stop, bias, nid = struct.unpack_from("<QQQQI", data, at + 8)
                path = data[at + 80:at + 8 * words].split(b"\0")[0].decode()
                self.modules.append((start, stop, bias, data[at + 44:at + 44 + nid].hex(), path, time))
            elif kind == THREAD:
                self.threads[ident] = (struct.unpack_from("<I", data, at + 8)[0],
                                       data[at + 16:at + 32].split(b"\0")[0].decode())
            elif kind == CARD:
                self.cards[ident] = struct.unpack_from("<Q", data, at + 8)[0]
            elif kind == TEXT:
                size, = struct.unpack_from("<I", data, at + 8)
                self.texts[TEXTS[ident]] = data[at + 16:at + 16 + size].decode(errors="replace")
            at += 8 * words

    def _event(self, data, at, words, kind, ident, thread):
        e = Event()
        (e.time, e.address, e.size, e.aux, e.code, e.duration, e.entry, e.via, e.kind, e.card, e.refuser,
         e.flags) = struct.unpack_from("<QQQQIIHBBBBB", data, at + 8)
        e.type, e.stack, e.thread = EVENTS[kind], ident, thread
        e.text = data[at + 56:at + 8 * words].split(b"\0")[0].decode()
        self.events.append(e)

    def peak(self):
        """Of allocated memory as the segment counts it, what is left at the end, and the number of oddities."""
        live, now, peak, odd = {}, 0, 0, 0
        freed = {}
        for e in self.events:
            key = (e.address, e.kind)
            if e.kind not in KINDS[:3]:
                continue
            if e.type == "ALLOC":
                odd += key in live
                now += e.size - live.get(key, 0)
                live[key] = e.size
                peak = max(peak, now)
            elif e.type == "BACK":
                now += e.size
                live[key] = e.size
            elif e.type == "FREE":
                odd += key not in live
                now -= live.pop(key, 0)
        return peak, now, odd

    def count(self, type_, **having):
        return sum(e.type == type_ and all(getattr(e, k) == v for k, v in having.items()) for e in self.events)

    def lines(self, stack):
        """Python frames of a stack, innermost first, as (file, name, line, is an entry)."""
        out = []
        for code, where in self.stack[stack][1]:
            file, name, first, table = self.code.get(code, ("?", "?", 0, b""))
            out.append((file, name, line_of(table, first, where & 0x7fffffff), where >> 31))
        return out


def line_of(table, first, offset):
    """CPython's location table (Objects/locations.md): the line of an instruction."""
    i, line, at = 0, first, 0

    def varint():
        nonlocal i
        value, shift = 0, 0
        while True:
            byte = table[i]
            i += 1
            value |= (byte & 63) << shift
            shift += 6
            if not byte & 64:
                return value

    while i < len(table):
        byte = table[i]
        i += 1
        code, length = byte >> 3 & 15, (byte & 7) + 1
        known = True
        if code == 15:
            known = False
        elif code in (13, 14):
            v = varint()
            line += -(v >> 1) if v & 1 else v >> 1
            if code == 14:
                varint(), varint(), varint()
        elif code >= 10:
            line += code - 10
            i += 2
        else:
            i += 1
        if at <= offset < at + 2 * length:
            return line if known else 0
        at += 2 * length
    return 0


if __name__ == "__main__":
    r = Record(sys.argv[1])
    print(r.texts, r.threads, r.cards, "lost", r.lost_events, r.lost_stacks, "end", r.end)
    print("peak", r.peak(), "events", len(r.events), "stacks", len(r.stack), "modules", len(r.modules))
    for e in r.events[:int(sys.argv[2]) if len(sys.argv) > 2 else 0]:
        print(e)
