"""Batches made ready in a thread, in order, a few ahead."""
import queue
import threading

import torch


class Prefetcher:
    def __init__(self, batches, count, ahead=4):
        self.batches, self.count = batches, count
        self.ready = queue.Queue(ahead)
        self.thread = threading.Thread(target=self.prepare, daemon=True)
        self.thread.start()

    def prepare(self):
        for number in range(self.count):
            batch, target = self.batches[number % len(self.batches)]
            noise = torch.randn(batch.shape)
            self.ready.put((batch + 0.1 * noise, target))
        self.ready.put(None)

    def __iter__(self):
        while (item := self.ready.get()) is not None:
            yield item
