"""What a process already holds when a receipt begins: models, single parameters, and states of generators."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

from xxhash import xxh3_128_hexdigest

from samerun.record.digests.trees import dict_items, named_modules
from samerun.record.watching.recorder import Recorder

MOST_MODELS = 1000
"""At most so many models and tensors are listed."""


def read_initial_state(recorder: Recorder) -> dict[str, Any]:
    """Digests of the models that exist, in the order of their names, and of the global generators.

    Found through the garbage collector: they were made before anybody watched. No method of the program is called, only
    the dicts are read in which torch keeps parameters, buffers and submodules. Torch is not imported for it.
    """
    if "torch" not in sys.modules:
        return {"models": [], "generators": {}}
    from samerun.record.watching.step_digests import StepDigester

    models = sorted(_describe_live_models(), key=lambda one: (one["model"], one["tensors"], one["digest"]))
    generators = {name: value.hex() for name, value in StepDigester(recorder).digest_rng_states()}
    return {"models": models[:MOST_MODELS], "generators": generators}


def _describe_live_models() -> Iterator[dict[str, Any]]:
    import torch

    modules, leaves = [], []
    for each in gc.get_objects():
        kind = type(each)  # not isinstance: that would call properties of proxies
        if issubclass(kind, torch.nn.Module):
            modules.append(each)
        elif kind in (torch.Tensor, torch.nn.Parameter) and each.is_leaf and each.requires_grad:
            leaves.append(each)
    inner = {id(child) for one in modules for _, child in dict_items(vars(one).get("_modules"))}
    owned: set[int] = set()
    for one in modules:
        if id(one) in inner:
            continue
        tensors = list(_iter_model_tensors(one))
        owned.update(map(id, tensors))
        if tensors:
            yield _describe(type(one).__name__, tensors)
    for each in leaves:
        if id(each) not in owned:
            yield _describe("a tensor of its own", [each])


def _iter_model_tensors(model: Any) -> Iterator[Any]:
    for _, module in named_modules(model):
        for kind in ("_parameters", "_buffers"):
            yield from (tensor for _, tensor in dict_items(vars(module).get(kind)) if tensor is not None)


def _describe(name: str, tensors: list[Any]) -> dict[str, Any]:
    from samerun.record.digests.digest import digest, is_readable

    parts = b"".join(digest(each) for each in tensors if is_readable(each))
    return {"model": name[:200], "tensors": len(tensors), "digest": xxh3_128_hexdigest(parts)}
