"""Uses the random generators as classes and as values: subclasses, pickles, copies, states."""

import copy
import pickle
import random

import numpy as np
import torch


class Loaded(random.Random):
    """A generator that likes large numbers."""

    def random(self):
        return super().random() ** 0.5


class Counting(random.SystemRandom):
    pass


random.seed(1)
np.random.seed(1)
torch.manual_seed(1)

loaded = Loaded(3)
print(loaded.random(), loaded.randint(1, 6), loaded.sample(range(10), 3), isinstance(loaded, random.Random))
print(pickle.loads(pickle.dumps(loaded)).random() == loaded.random())
print(isinstance(random.SystemRandom(), random.Random), 0 <= Counting().random() < 1, type(random.random.__self__).__name__)

state = pickle.loads(pickle.dumps(random.getstate()))
first = [random.random(), random.gauss(0, 1), random.choice("abc")]
random.setstate(state)
print([random.random(), random.gauss(0, 1), random.choice("abc")] == first, first)
own = random.Random(5)
twin = copy.deepcopy(own)
print(own.random() == twin.random(), copy.copy(own).random() == own.random())
try:
    copy.deepcopy(random)
except TypeError as error:
    print("a module cannot be copied:", error)

legacy = np.random.RandomState(7)
print(pickle.loads(pickle.dumps(legacy)).rand() == legacy.rand(), isinstance(legacy, np.random.RandomState))
saved = np.random.get_state()
drawn = np.random.rand(2)
np.random.set_state(saved)
print((np.random.rand(2) == drawn).all(), np.random.mtrand._rand.rand(), isinstance(np.random.mtrand._rand, np.random.RandomState))
modern = np.random.Generator(np.random.PCG64(np.random.SeedSequence(9)))
print(pickle.loads(pickle.dumps(modern)).random() == modern.random(), isinstance(np.random.default_rng(modern), np.random.Generator))
print(np.random.default_rng(modern) is modern, [child.random() for child in modern.spawn(2)])
print(type(np.random.default_rng()) is np.random.Generator, copy.deepcopy(modern).random() == modern.random())

generator = torch.Generator().manual_seed(11)
clone = generator.clone_state()
print(torch.equal(torch.randn(3, generator=generator), torch.randn(3, generator=clone)))
keep = generator.get_state()
before = torch.rand(2, generator=generator)
print(torch.equal(torch.rand(2, generator=generator.set_state(keep)), before), generator.initial_seed())
print(isinstance(torch.default_generator, torch.Generator), type(generator) is torch.Generator, torch.default_generator.initial_seed())
with torch.random.fork_rng(devices=[]):
    torch.manual_seed(99)
    inside = torch.rand(1)
print(inside.item(), torch.rand(1).item(), torch.initial_seed())
print(torch.empty(3).normal_(generator=generator).tolist(), torch.randperm(5, generator=generator).tolist())
