"""What is known about how a difference in the surroundings of two runs can change their bits.

One ordered table; the first rule whose pattern fits the path of a difference counts. The numbers of operators
are measured: 176 operators, forward and gradients, torch 2.13 on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Rule:
    """`pattern`: of the path in the receipt, with `*`. `rank`: how likely it is the reason, 100 the most."""

    pattern: str
    rank: int
    changes: str


RULES = (
    Rule("held.seed", 100, "every number that is drawn"),
    Rule("processes/*/seeds", 98, "every number that is drawn from these generators"),
    Rule("seed", 97, "every number that is drawn"),
    Rule("start.models", 96, "every value: they were built before the receipt began, so seed before that"),
    Rule("start.generators", 95, "every number that is drawn: seed them before the receipt begins, or in it"),
    Rule("command", 94, "what the program does"),
    Rule("processes/*/files", 93, "what the program computes with"),
    Rule("processes/*/loaded", 93, "what the program computes with"),
    Rule("code.*", 92, "what the program does"),
    Rule("repository.*", 26, "little: the sources that ran are the same"),
    Rule("packages.torch", 90, "which kernels there are, and how operators are put together"),
    Rule("machine.torch.version", 90, "which kernels there are, and how operators are put together"),
    Rule("machine.torch.git", 40, "which kernels there are"),
    Rule("machine.torch.devices", 88, "which kernels run, and how they split a sum"),
    Rule("knobs.threads", 86, "32 of 176 operators: sum, mean, var, prod, gradients of linear, convolution and "
                              "normalisation, most of linalg"),
    Rule("machine.torch.threads", 85, "32 of 176 operators: sums, normalisation, gradients of convolution, linalg"),
    Rule("held.threads", 84, "the number of threads: 32 of 176 operators"),
    Rule("knobs.cpu_capability", 83, "64 of 176 operators: softmax, normalisation, activations, attention, "
                                     "optimizers, normal random numbers"),
    Rule("machine.torch.cpu_capability", 82, "64 of 176 operators: softmax, normalisation, attention, optimizers"),
    Rule("machine.processor", 80, "which kernels MKL, oneDNN and torch choose: up to 89 of 176 operators"),
    Rule("machine.machine", 80, "the compiled code of every operator"),
    Rule("knobs.mkl_cbwr", 78, "26 of 176 operators: matmul, linear, attention, recurrent layers, linalg"),
    Rule("variables.MKL_*", 77, "26 of 176 operators: matmul, linear, attention, recurrent layers, linalg"),
    Rule("knobs.onednn_isa", 74, "9 of 176 operators: convolution, gelu, LSTM"),
    Rule("knobs.fp32_precision", 72, "matmul and convolution in float32: TF32 has 10 bits of fraction, not 23"),
    Rule("knobs.deterministic_algorithms", 70, "operators that add in the order in which threads come"),
    Rule("knobs.reduced_precision_reduction", 68, "matmul in 16 bits"),
    Rule("knobs.fp16_accumulation", 68, "matmul in float16"),
    Rule("knobs.cudnn_*", 66, "which algorithm a convolution takes"),
    Rule("machine.torch.cudnn", 66, "convolution and recurrent layers on CUDA"),
    Rule("machine.torch.cuda", 65, "every kernel on CUDA"),
    Rule("machine.driver", 40, "little by itself: kernels compiled at run time"),
    Rule("machine.torch.driver", 40, "little by itself: kernels compiled at run time"),
    Rule("knobs.sdpa", 64, "which kernel attention takes"),
    Rule("knobs.hash_seed", 62, "the order of sets and of what is derived from hash(str)"),
    Rule("variables.PYTHONHASHSEED", 61, "the order of sets and of what is derived from hash(str)"),
    Rule("knobs.fill_uninitialized_memory", 60, "what empty() holds"),
    Rule("processes/*/environment", 58, "whatever the program does with these variables"),
    Rule("knobs.*", 56, "a setting on which bits can depend"),
    Rule("variables.OMP_*", 54, "the number of threads"),
    Rule("variables.*", 50, "what the library that reads it does"),
    Rule("held.*", 48, "how the run was held still"),
    Rule("held", 48, "whether the run was held still"),
    Rule("packages.numpy", 46, "NumPy's results and generators"),
    Rule("packages.*", 30, "what comes from this package"),
    Rule("machine.python", 28, "the order of sets, the random module's methods"),
    Rule("machine.*", 10, "nothing by itself; the number of threads may follow from it"),
    Rule("streams", 10, "which named streams there are"),
    Rule("others", 56, "settings of single ranks"),
    Rule("samerun", 5, "how values are digested"),
)  # fmt: skip


def rule_for(path: str) -> Rule:
    """The rule for a path; there is always one."""
    return next((rule for rule in RULES if fnmatchcase(path, rule.pattern)), Rule(path, 20, "not known"))
