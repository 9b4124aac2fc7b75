"""A training run in small, through dpctl: weights, activations that come and go, optimizer state, a leak, and one
request that is too large. Made for reports: what is live when, and who allocated it, is easy to see."""
import ctypes
import time

import dpctl
from dpctl.memory import MemoryUSMDevice

MIB = 1 << 20
devices = dpctl.get_devices(backend="level_zero", device_type="gpu")
queues = [dpctl.SyclQueue(dpctl.SyclContext(devices), d) for d in devices]
preload = ctypes.CDLL(None)


def mark(text):
    if hasattr(preload, "zeroute_mark"):
        preload.zeroute_mark(text.encode())


class Linear:
    def __init__(self, size, queue):
        self.queue = queue
        self.size = size
        self.weight = MemoryUSMDevice(size, queue=queue)

    def forward(self):
        time.sleep(0.002)
        self.output = MemoryUSMDevice(self.size // 2, queue=self.queue)
        return self.output

    def backward(self):
        time.sleep(0.002)
        self.gradient = MemoryUSMDevice(self.size, queue=self.queue)
        del self.output


class Attention(Linear):
    def forward(self):
        scores = MemoryUSMDevice(self.size * 2, queue=self.queue)
        time.sleep(0.003)
        result = super().forward()
        del scores
        return result


class Adam:
    def __init__(self, layers):
        self.layers = layers
        self.momentum = [MemoryUSMDevice(x.size, queue=x.queue) for x in layers]
        self.variance = [MemoryUSMDevice(x.size, queue=x.queue) for x in layers]

    def step(self):
        for layer in self.layers:
            del layer.gradient
            time.sleep(0.001)


def build():
    layers = []
    for i in range(8):
        queue = queues[i * len(queues) // 8]
        layers += [Attention(48 * MIB, queue), Linear(64 * MIB, queue)]
    return layers


def evaluate(layers):
    for layer in layers:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(MemoryUSMDevice(4 * MIB, queue=layer.queue)))  # a leak
        layer.forward()
        del layer.output


def train(layers, steps):
    optimizer = None
    for step in range(steps):
        mark(f"step {step}")
        for layer in layers:
            layer.forward()
        for layer in reversed(layers):
            layer.backward()
        optimizer = optimizer or Adam(layers)
        optimizer.step()


layers = build()
for epoch in range(2):
    train(layers, 3)
    mark(f"evaluate {epoch}")
    evaluate(layers)
try:
    MemoryUSMDevice(64 << 30, queue=queues[0])
except Exception as error:
    print("too large:", type(error).__name__)
