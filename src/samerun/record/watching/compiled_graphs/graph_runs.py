"""Run a graph on copies of its inputs, as it is or in float64, and take what it gives as numbers. Imports torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from samerun.record.comparison.rounding import ItemKey
from samerun.record.digests.torch_guards import PLAIN_TYPES, has_real_values
from samerun.record.watching.run_numbers.float64_mode import WIDE, float64_by_default

WIDENING_METHODS = ("float", "half", "bfloat16")
"""Methods that name a dtype; in float64 they are `double`."""
Run = Callable[..., Any]


class NotInspectable(Exception):
    """A graph or its inputs are of a kind that cannot be copied and run again."""


# --- inputs ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TensorCopy:
    """A copy of a tensor. Tensors that share memory share it in their copies too."""

    value: Any
    requires_grad: bool
    is_leaf: bool
    group: int
    """Number of the storage."""


def copy_inputs(values: Sequence[Any], in_float64: bool = False, ulp_direction: int = 0) -> list[Any]:
    """Copies of tensors, a `TensorCopy` each; tuples of them become tuples; other values as they are.

    in_float64: in float64. ulp_direction: 1 or -1 moves every element by one ulp, by a fixed pattern or its reverse.
    Raises NotInspectable for tensor subclasses and tensors without values.
    """
    copied: dict[int, tuple[int, Any]] = {}

    def copy_one(value: Any) -> Any:
        if type(value) in (tuple, list):
            return tuple(copy_one(item) for item in value)
        if isinstance(value, TensorCopy):
            made = copy_one(value.value)
            return TensorCopy(made.value, value.requires_grad, value.is_leaf, value.group)
        if not isinstance(value, torch.Tensor):
            return value
        if type(value) not in PLAIN_TYPES or not has_real_values(value) or value.layout != torch.strided:
            raise NotInspectable(f"a tensor of type {type(value).__name__}")
        plain = value.detach()
        dtype = WIDE.get(plain.dtype, plain.dtype) if in_float64 else plain.dtype
        if plain.is_conj() or plain.is_neg() or plain.is_quantized:
            made, group = (
                perturb_tensor_by_eps_with_mixed_signs(plain.clone().to(dtype), ulp_direction),
                -1 - len(copied),
            )
        else:
            storage = plain.untyped_storage()
            key = storage._cdata ^ hash(plain.dtype)
            if key not in copied:
                whole = torch.empty(0, dtype=plain.dtype, device=plain.device)
                whole.set_(storage, 0, (storage.nbytes() // plain.element_size(),), (1,))
                copied[key] = (
                    len(copied),
                    perturb_tensor_by_eps_with_mixed_signs(whole.clone().to(dtype), ulp_direction),
                )
            group, memory = copied[key]
            made = torch.empty(0, dtype=dtype, device=plain.device)
            made.set_(memory.untyped_storage(), plain.storage_offset(), plain.shape, plain.stride())
        return TensorCopy(made, value.requires_grad, value.is_leaf, group)

    with torch.no_grad():
        return [copy_one(value) for value in values]


def perturb_tensor_by_eps_with_mixed_signs(tensor: Any, direction: int) -> Any:
    if not direction or not tensor.is_floating_point():
        return tensor
    pattern = torch.arange(tensor.numel(), dtype=torch.float64, device=tensor.device) * 0.6180339887 % 1 < 0.5
    sign = (pattern.to(tensor.dtype) * 2 - 1).reshape(tensor.shape) * direction
    return tensor * (1 + sign * torch.finfo(tensor.dtype).eps)


def flatten_copies(values: Sequence[Any]) -> list[Any]:
    """What a graph is called with: the elements of tuples one by one."""
    return [item for value in values for item in (flatten_copies(value) if type(value) is tuple else [value])]


# --- float64 -----------------------------------------------------------------------------------------------------
def copy_graph_sharing_tensors(graph_module: GraphModule) -> GraphModule:
    """A copy whose nodes are its own, as a backend may change them; it shares tensors, but no graphs inside."""
    made = GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    for name, child in list(made.named_children()):
        if isinstance(child, GraphModule):
            setattr(made, name, copy_graph_sharing_tensors(child))
    made.meta = dict(graph_module.meta)
    return made


def copy_graph_in_float64(graph_module: GraphModule) -> GraphModule:
    """A copy that computes in float64: casts and constants of a narrower dtype are of that too, autocast is off."""
    made = copy_graph_sharing_tensors(graph_module)
    for name, child in list(made.named_children()):
        if isinstance(child, GraphModule):
            setattr(made, name, copy_graph_in_float64(child))
        else:
            setattr(made, name, copy.deepcopy(child).to(torch.float64))
    owners: tuple[dict[str, Any], ...] = (cast(Any, made._parameters), made._buffers, vars(made))
    for owner in owners:
        for name, value in list(owner.items()):
            if isinstance(value, torch.Tensor) and value.dtype in WIDE:
                owner[name] = value.detach().to(WIDE[value.dtype])

    def widen(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return WIDE.get(value, value)
        if type(value) in (tuple, list):
            return type(value)(widen(item) for item in value)
        return value

    for node in made.graph.nodes:
        if node.op == "call_method" and node.target in WIDENING_METHODS:
            node.target = "double"
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "_enter_autocast":
            node.args = (*node.args[:2], False, *node.args[3:])
            continue
        node.args = tuple(widen(item) for item in node.args)
        node.kwargs = {name: widen(value) for name, value in node.kwargs.items()}
    made.recompile()
    return made


@contextmanager
def default_to_float64_without_autocast(is_enabled: bool) -> Iterator[None]:
    """Where it is is_enabled: new tensors are in float64, and no autocast is in force."""
    if not is_enabled:
        yield
        return
    with float64_by_default(), ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


# --- runs --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RunValue:
    """One result: its numbers (NumPy, float64 or int64), dtype and shape."""

    numbers: Any
    dtype: str
    shape: tuple[int, ...]


Values = dict[ItemKey, RunValue]
"""What a run gave: outputs, gradients, inputs written into; "form": how outputs share memory and need gradients."""


def get_cpu_and_cuda_random_states() -> tuple[Any, Any]:
    cuda: Any = torch.cuda
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if cuda.is_initialized() else None


def run_on_copies(
    run: Run, inputs: Sequence[Any], random_states: Any, in_float64: bool, with_sharing_and_grad_flags: bool
) -> Values:
    """Call a graph on copies of `inputs` (as `copy_inputs` gives them), backward too; generators are put back after."""
    copies = flatten_copies(copy_inputs(inputs))
    kept = get_cpu_and_cuda_random_states()
    try:
        torch.set_rng_state(random_states[0])
        if random_states[1] is not None:
            torch.cuda.set_rng_state_all(random_states[1])
        with default_to_float64_without_autocast(in_float64):
            return call_with_backward_and_take_values(run, copies, with_sharing_and_grad_flags)
    finally:
        torch.set_rng_state(kept[0])
        if kept[1] is not None:
            torch.cuda.set_rng_state_all(kept[1])


def call_with_backward_and_take_values(run: Run, copies: list[Any], with_sharing_and_grad_flags: bool) -> Values:
    leaves: dict[int, Any] = {}
    passed = []
    groups = [each.group for each in copies if isinstance(each, TensorCopy)]
    for at, each in enumerate(copies):
        value = each
        if isinstance(each, TensorCopy):
            value = each.value
            if each.requires_grad:
                value.requires_grad_()
                leaves[at] = value
                if not each.is_leaf and groups.count(each.group) == 1 and not torch.is_inference_mode_enabled():
                    with torch.enable_grad():
                        value = value.clone()  # it may be written into, which a leaf may not
        passed.append(value)
    outputs = pytree.tree_leaves(run(*passed))
    found: Values = {}
    for at, output in enumerate(outputs):
        if isinstance(output, torch.Tensor):
            found["output", str(at)] = copy_to_run_value(output)
        elif isinstance(output, (bool, int, float)):
            found["output", str(at)] = copy_to_run_value(torch.tensor(output))
    if with_sharing_and_grad_flags:
        found["form", ""] = describe_sharing_and_grad_flags([*passed, *outputs], len(passed))
    for at, value in enumerate(passed):
        if isinstance(value, torch.Tensor):
            found["input", str(at)] = copy_to_run_value(value)
    compute_and_add_gradients(found, outputs, leaves)
    return found


def compute_and_add_gradients(found: Values, outputs: list[Any], leaves: dict[int, Any]) -> None:
    """The gradients of the outputs, with fixed weights, for the inputs."""
    ends = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad and (
        o.is_floating_point() or o.is_complex())]  # fmt: skip
    if not ends or not leaves:
        return
    weights = [weigh(end) for end in ends]
    gradients = torch.autograd.grad(ends, list(leaves.values()), weights, allow_unused=True)
    for at, gradient in zip(leaves, gradients, strict=True):
        if gradient is not None:
            found["gradient", str(at)] = copy_to_run_value(gradient)


def weigh(end: Any) -> Any:
    pattern = torch.arange(end.numel(), dtype=torch.float64, device=end.device) * 0.6180339887 % 1 + 0.5
    return pattern.reshape(end.shape).to(end.dtype)


def copy_to_run_value(tensor: Any) -> RunValue:
    plain = tensor.detach()
    dtype = str(plain.dtype).removeprefix("torch.")
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    wanted = torch.float64 if plain.is_floating_point() else torch.int64
    flat = plain.resolve_neg().to("cpu", wanted).reshape(-1).clone()
    return RunValue(flat.numpy(), dtype, tuple(tensor.shape))


def describe_sharing_and_grad_flags(tensors: list[Any], input_count: int) -> RunValue:
    """Which tensors share memory with which earlier one, and which outputs need gradients."""
    owners: dict[int, int] = {}
    numbers = []
    for at, tensor in enumerate(tensors):
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            numbers.append(owners.setdefault(tensor.untyped_storage()._cdata, at))
            numbers.append(int(tensor.requires_grad) if at >= input_count else 0)
    return copy_to_run_value(torch.tensor(numbers, dtype=torch.int64))


# --- compiling ---------------------------------------------------------------------------------------------------
def compile_graph(backend: Run, graph_module: GraphModule, inputs: Sequence[Any], default_is_float64: bool) -> Run:
    """What a backend makes of a copy of the graph, which it gets as Dynamo would hand it over: with fake inputs."""
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    made = copy_graph_sharing_tensors(graph_module)
    fake_mode: Any = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)
    fakes = []
    for each in flatten_copies(copy_inputs(inputs)):
        value = each
        if isinstance(each, TensorCopy):
            value = each.value.requires_grad_() if each.requires_grad else each.value
            if each.requires_grad and not each.is_leaf:
                with torch.enable_grad():
                    value = value.clone()
            value = fake_mode.from_tensor(value, static_shapes=True)
        fakes.append(value)
    with default_to_float64_without_autocast(default_is_float64):
        try:
            record_example_values_at_nodes(made, fakes, fake_mode)
        except Exception:  # an operator without shapes: the backend finds out itself
            pass
        context = TracingContext(fake_mode)
        with tracing(context):
            return backend(made, fakes)  # type: ignore[no-any-return]


def record_example_values_at_nodes(graph_module: GraphModule, fakes: list[Any], fake_mode: Any) -> None:
    """Note at every node what it gives, as Dynamo does."""

    class Propagation(torch.fx.Interpreter):
        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.op not in ("output",):
                n.meta["example_value"] = value
            return value

    kept = get_cpu_and_cuda_random_states()
    grad = torch.is_grad_enabled()
    try:
        with fake_mode:
            Propagation(graph_module).run(*fakes)
    finally:
        torch.set_grad_enabled(grad)
        torch.set_rng_state(kept[0])
