#!/usr/bin/env python3
"""hostile.py UID PROCESSES SEGMENTS FIELDS NAME: live processes of a user that hold segments of their own, all of one
job, made by hand. In NAME, of a field, %i is the number of the segment and %k that of the field. Prints
"ready" once all are there, and waits."""
import fcntl
import os
import struct
import sys
import time

HEADER = struct.Struct("<QIIQIIQQQQ40s16s40s96s16s256sQQQIIQQIIIIQQQQQIIQQ")
FIELD = struct.Struct("<80s16s128sHHIIIIIII")
SHARD = 4096
uid, processes, segments, fields = map(int, sys.argv[1:5])
name = sys.argv[5]
held = []


def make(number):
    pid = os.getpid()
    start = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    namespace = int(os.readlink("/proc/self/ns/pid")[5:-1])
    boot = open("/proc/sys/kernel/random/boot_id", "rb").read().strip()
    shards = HEADER.size + FIELD.size * fields
    f = open("/dev/shm/zeroute-%d/%d.%016x" % (uid, pid, number), "w+b")
    f.write(HEADER.pack(0x31544F5245535A5A, 4, HEADER.size, shards + SHARD, pid, uid, namespace, start, number,
                        number + 1, boot, b"1", b"", b"slurm:81.0", b"1", b"hostile", 0, 64, HEADER.size, FIELD.size,
                        fields, shards, SHARD, 1, 8, 0, 126, 0, 0, 10**9, 0, 0, 0, 0, 0, 0))
    for k in range(fields):
        text = name.replace("%i", str(number)).replace("%k", str(k)).encode()
        f.write(FIELD.pack(text, b"", b"", 1, 0, 64, 8, 1, 0, 0, 0, 0))
    f.write(struct.pack("<Q", 5) * (SHARD // 8))
    f.flush()
    fcntl.lockf(f, fcntl.LOCK_EX, 1)
    held.append(f)


os.setgid(uid)
os.setuid(uid)
os.makedirs("/dev/shm/zeroute-%d" % uid, 0o700, exist_ok=True)
children = []
parent = os.getpid()
for p in range(processes):
    read, write = os.pipe()
    children.append(read)
    if os.fork() == 0:
        for n in range(segments):
            make(p * segments + n)
        os.write(write, b"x")
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)
    os.close(write)
for read in children:
    os.read(read, 1)
print("ready", flush=True)
time.sleep(1000)
