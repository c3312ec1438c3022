"""Which calls draw from a global random generator."""

from __future__ import annotations

import ast
import re

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import keyword_value
from samerun.lint.source_index import FUNCTIONS, SourceIndex

DRAWING_LAYERS = re.compile(
    r"(?:Lazy)?(?:Linear|Bilinear|(?:Conv|ConvTranspose)[123]d|Embedding|EmbeddingBag|MultiheadAttention"
    r"|(?:RNN|LSTM|GRU)(?:Cell)?|Transformer\w*)"
)
DRAWING_METHODS = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_"}
TORCH_DRAWS = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
               "multinomial", "poisson"}  # fmt: skip
PYTHON_DRAWS = {
    "random", "randint", "randrange", "uniform", "gauss", "normalvariate", "choice", "choices", "sample", "shuffle",
    "betavariate", "expovariate", "triangular", "getrandbits", "randbytes", "lognormvariate", "vonmisesvariate",
}  # fmt: skip
GENERATOR_MAKERS = {"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"}
NUMPY_METHODS = {"permutation", "permuted", "integers", "normal", "standard_normal", "rand", "randn"}
DRAWING_METHODS_OF_GENERATORS = PYTHON_DRAWS | NUMPY_METHODS
NOT_NUMPY_DRAWS = {
    "seed", "get_state", "set_state", "default_rng", "RandomState", "Generator", "SeedSequence", "PCG64", "PCG64DXSM",
    "MT19937", "Philox", "SFC64", "BitGenerator", "mtrand", "bit_generator", "get_bit_generator",
}  # fmt: skip


DISPLAY = re.compile(
    r"disp|plot|visuali|preview|(?:^|_)(?:vis|viz|show|shown|log|logs|logging|print|debug|verbose|demo|gifs?)(?:_|$)",
    re.IGNORECASE,
)


def is_for_display(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands in a function, or under a condition, that is there to show something."""
    around = {one.name for one in index.ancestors(node) if isinstance(one, FUNCTIONS)}
    asked = {
        last_identifier(one) for test in index.enclosing_tests(node) for one in ast.walk(test)
        if isinstance(one, (ast.Name, ast.Attribute, ast.Call))
    }  # fmt: skip
    return any(DISPLAY.search(one) for one in around | asked)


def drawn_generator(name: str) -> str:
    """The global generator that a function of this name draws from: python, numpy, torch; "" for none."""
    module, _, last = name.rpartition(".")
    if module == "random" and last in PYTHON_DRAWS:
        return "python"
    if module == "numpy.random" and last not in NOT_NUMPY_DRAWS and last[:1].islower():
        return "numpy"
    return "torch" if module == "torch" and last in TORCH_DRAWS else ""


def draws_from_global_generator(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call draws from a global generator, or builds a layer, which does."""
    name = index.call_names.get(call, "")
    if keyword_value(call, "generator") is not None:
        return False
    return makes_layer(index, call) or bool(drawn_generator(name)) or last_identifier(call.func) in DRAWING_METHODS


def makes_layer(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call builds a layer of torch.nn, whose weights are drawn."""
    name = index.call_names.get(call, "")
    return name.startswith("torch.nn.") and bool(DRAWING_LAYERS.fullmatch(name.removeprefix("torch.nn.")))
