"""Classes of the program's own override what a watcher might call; what is called is printed."""

import asyncio
import collections
import dataclasses
import enum

import torch

torch.manual_seed(0)
called = []


def telling(base, *names):
    def make(name):
        def method(self, *args, **kwargs):
            called.append(f"{base.__name__}.{name}")
            return getattr(super(kind, self), name)(*args, **kwargs)

        return method

    kind = type("Own" + base.__name__, (base,), {name: make(name) for name in names})
    return kind


OwnModule = telling(
    torch.nn.Module, "named_parameters", "named_buffers", "named_modules", "parameters", "buffers", "state_dict",
    "modules", "children", "named_children", "_named_members",
)  # fmt: skip
OwnDict = telling(dict, "items", "values", "keys", "__iter__", "__len__", "__getitem__")
OwnOrdered = telling(collections.OrderedDict, "items", "values", "keys", "__iter__")
OwnList = telling(list, "__iter__", "__len__", "__getitem__")
OwnTuple = telling(tuple, "__iter__", "__len__", "__getitem__")
OwnText = telling(str, "__repr__", "__str__", "encode")


class Kind(enum.IntEnum):
    ONE = 1

    def __repr__(self):
        called.append("repr of an enum")
        return "ONE"


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    kind: Kind

    def __getattribute__(self, name):
        called.append(f"Batch.{name}")
        return object.__getattribute__(self, name)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        x = torch.full((2,), float(index))
        return OwnDict(a=OwnList([x]), b=OwnTuple((Kind.ONE, OwnText("t"))), c=OwnOrdered(d=x), e=Batch(x, Kind.ONE))


class Model(OwnModule):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 1)
        self.tied = self.inner
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return self.inner(x).sum()


model = Model()
optimizer = torch.optim.SGD(torch.nn.Module.parameters(model.inner), lr=0.1)
called.clear()
for batch in torch.utils.data.DataLoader(Data(), batch_size=None, collate_fn=lambda sample: sample):
    optimizer.zero_grad()
    model(dict.__getitem__(batch, "a").copy()[0]).backward()
    optimizer.step()
print(called)


async def attempt(make):
    try:
        awaited = make()
        return [len(part) for part in await asyncio.wait(awaited)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for each in awaited if isinstance(awaited, list) else [awaited]:
            if asyncio.iscoroutine(each):
                each.close()


async def main():
    task = asyncio.ensure_future(asyncio.sleep(0))
    for make in (
        lambda: [], lambda: None, lambda: 3, lambda: "ab", lambda: [1], lambda: task, lambda: {task},
        lambda: asyncio.sleep(0), lambda: [asyncio.sleep(0)], lambda: (each for each in [task]),
    ):  # fmt: skip
        print(await attempt(make))


asyncio.run(main())
