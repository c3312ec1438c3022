"""What each family of the table promises of its results: how it adds up, how often it rounds, how accurate it is."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from torch import Tensor

from samerun.numerics.aten_handlers import attention, complex_numbers, exact, quantized, recurrent, sparse, table


class Promise(NamedTuple):
    """Of float32 and float64 (each in its own type, unless said); `half`: of bfloat16 and float16."""

    adds: str
    rounds: str
    accuracy: str
    half: str


WIDENED = "computed in float32, and rounded once more"
IN_OWN_TYPE = "as float32"
STEPS = "the steps in the formula, each rounded once"
TREE = "class S: 32 lanes in blocks of 4096, then pairs"
CHAIN = "class M: fma chains over 256 values of k, in ascending order"
IN_ORDER = "one after the other, in ascending order of the source"

GROWS_WITH_K = "an error that grows with K / 256"
GROWS_WITH_TERMS = "an error that grows with the number of terms"
HALF_ULP_A_STEP = "half an ulp a step"

PROMISES: dict[str, Promise] = {
    "exact": Promise("only gradients that meet at one place (of pooling, padding, nearest places): in ascending order",
                     "once, or never", "the nearest number, or exact", "rounded once"),
    "arithmetic": Promise("nothing", STEPS, HALF_ULP_A_STEP, WIDENED),
    "functions": Promise("nothing", "once; activations and windows a step at a time", "functions: the nearest number",
                         WIDENED),
    "reductions": Promise(TREE + "; running sums and products in ascending order", "every addition",
                          "an error that grows with log n; running sums with n", WIDENED),
    "softmax": Promise(TREE, STEPS, "a few ulp", WIDENED),
    "norms": Promise(TREE, STEPS, "a few ulp of the largest value", WIDENED),
    "losses": Promise(TREE, STEPS, "a few ulp of the largest term", WIDENED),
    "linear_algebra": Promise(CHAIN, "every fma; alpha, beta and bias apart", GROWS_WITH_K, WIDENED),
    "convolution": Promise(CHAIN, "every fma; the bias apart", GROWS_WITH_K, WIDENED),
    "pooling": Promise("one window by class S", STEPS, HALF_ULP_A_STEP, WIDENED),
    "indexing": Promise(IN_ORDER + "; embeddings by class S", "every addition", GROWS_WITH_TERMS,
                        WIDENED),
    "interpolation": Promise("taps from left to right", "weights from float64 once, then every product and sum",
                             HALF_ULP_A_STEP, WIDENED),
    "random": Promise("nothing", STEPS, "uniform numbers are exact; functions of them the nearest numbers",
                      "rounded once"),
    "distributions": Promise("nothing", "in float64, then once", "the float64 of the written steps", "rounded once"),
    "optimizers": Promise("norms by class S", STEPS, HALF_ULP_A_STEP, WIDENED),
    "grid_sample": Promise("corners from left to right; gradients in ascending order", STEPS, HALF_ULP_A_STEP,
                           WIDENED),
    "order_statistics": Promise("nothing", "never", "exact; of equal values the first", IN_OWN_TYPE),
    "ctc_loss": Promise("over time, in ascending order", STEPS, "a few ulp of the largest logarithm", WIDENED),
    "special_functions": Promise("series and continued fractions in float64", "in float64, then once",
                                 "1e-13 of the larger of the result and 1, mostly 1e-15; float32 but for the last bit",
                                 "computed in float64, and rounded once"),
    "bessel_functions": Promise("series and sums of fixed length in float64", "in float64, then once",
                                "about 1e-15 of the larger of the result and 1; polynomials as their recurrences",
                                "computed in float64, and rounded once"),
    "factorizations": Promise(TREE + ", and class M", "in float64, then once", "some 1e-15 of the norm of the matrix",
                              "not there, as in torch"),
    "structured_updates": Promise(IN_ORDER, "every addition or product", GROWS_WITH_TERMS,
                                  WIDENED),
    "complex_numbers": Promise("in each part by class S, products of matrices by class M",
                               "each product and sum of parts; Fourier transforms in float64, then once",
                               "Fourier transforms about 1e-15 of the norm of the input", "not there"),
    "sparse": Promise(TREE + "; entries of one place in the order in which they are stored",
                      "every product and addition", "as a sum", WIDENED),
    "quantized": Promise("integers, exactly", "inputs to 256 steps of their range; sum, scale and bias apart",
                         "as torch's: the step in which inputs are rounded", "float16 is for weights alone"),
    "attention": Promise(CHAIN + ", and class S", "as product, softmax and product", "as those", WIDENED),
    "recurrent": Promise(CHAIN, "the textbook's equations, step by step", "as products and functions", WIDENED),
}  # fmt: skip
"""By the name of the family."""


def list_families() -> list[tuple[ModuleType, dict[str, str]]]:
    """Every family with its operators, and the formula of each that has one ("" where it follows from the family)."""
    found: list[tuple[ModuleType, dict[str, str]]] = [
        (exact, dict.fromkeys(sorted(exact.EXACT | exact.EXACT_OVERLOADS), ""))
    ]
    for family in (*table.FAMILIES, attention, recurrent, quantized, complex_numbers, sparse):
        kinds = (getattr(family, kind, {}) for kind in ("MEMBERS", "COMPOSED", "QUANTIZED"))
        members = {name: handler for members in kinds for name, handler in members.items()}
        found.append((family, {name: _first_sentence(handler.__doc__) for name, handler in members.items()}))
    return found


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()) if text != Tensor.__doc__ else ""
