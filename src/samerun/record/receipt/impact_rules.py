"""How a difference between two environments can change the bits of a run.

One ordered table; the first rule whose pattern matches the path of a difference applies. The numbers of operators are
measured: 176 operators, forward and gradients, torch 2.13 on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class ImpactRule:
    """`pattern`: matches the path in the receipt. `rank`: how likely it is the reason, at most 100."""

    pattern: str
    rank: int
    changes: str


RULES = (
    ImpactRule("held.seed", 100, "every number that is drawn"),
    ImpactRule("processes/*/seeds", 98, "every number that is drawn from these generators"),
    ImpactRule("seed", 97, "every number that is drawn"),
    ImpactRule("start.models", 96, "every value: they were built before the receipt began, so seed before that"),
    ImpactRule("start.generators", 95, "every number that is drawn: seed them before the receipt begins, or in it"),
    ImpactRule("command", 94, "what the program does"),
    ImpactRule("processes/*/files", 93, "what the program computes with"),
    ImpactRule("processes/*/loaded", 93, "what the program computes with"),
    ImpactRule("code.*", 92, "what the program does"),
    ImpactRule("repository.*", 26, "little: the sources that ran are the same"),
    ImpactRule("packages.torch", 90, "which kernels there are, and how operators are put together"),
    ImpactRule("machine.torch.version", 90, "which kernels there are, and how operators are put together"),
    ImpactRule("machine.torch.git", 40, "which kernels there are"),
    ImpactRule("machine.torch.devices", 88, "which kernels run, and how they split a sum"),
    ImpactRule("knobs.threads", 86,
               "32 of 176 operators: sum, mean, var, prod, gradients of linear, "
               "convolution and normalisation, most of linalg"),
    ImpactRule("machine.torch.threads", 85,
               "32 of 176 operators: sums, normalisation, gradients of convolution, linalg"),
    ImpactRule("held.threads", 84, "the number of threads: 32 of 176 operators"),
    ImpactRule("knobs.cpu_capability", 83,
               "64 of 176 operators: softmax, normalisation, activations, attention, "
               "optimizers, normal random numbers"),
    ImpactRule("machine.torch.cpu_capability", 82,
               "64 of 176 operators: softmax, normalisation, attention, optimizers"),
    ImpactRule("machine.processor", 80, "which kernels MKL, oneDNN and torch choose: up to 89 of 176 operators"),
    ImpactRule("machine.machine", 80, "the compiled code of every operator"),
    ImpactRule("knobs.mkl_cbwr", 78, "26 of 176 operators: matmul, linear, attention, recurrent layers, linalg"),
    ImpactRule("variables.MKL_*", 77, "26 of 176 operators: matmul, linear, attention, recurrent layers, linalg"),
    ImpactRule("knobs.onednn_isa", 74, "9 of 176 operators: convolution, gelu, LSTM"),
    ImpactRule("knobs.fp32_precision", 72, "matmul and convolution in float32: TF32 has 10 bits of fraction, not 23"),
    ImpactRule("knobs.deterministic_algorithms", 70, "operators that add in the order in which threads come"),
    ImpactRule("knobs.reduced_precision_reduction", 68, "matmul in 16 bits"),
    ImpactRule("knobs.fp16_accumulation", 68, "matmul in float16"),
    ImpactRule("knobs.cudnn_*", 66, "which algorithm a convolution takes"),
    ImpactRule("machine.torch.cudnn", 66, "convolution and recurrent layers on CUDA"),
    ImpactRule("machine.torch.cuda", 65, "every kernel on CUDA"),
    ImpactRule("machine.driver", 40, "little by itself: kernels compiled at run time"),
    ImpactRule("machine.torch.driver", 40, "little by itself: kernels compiled at run time"),
    ImpactRule("knobs.sdpa", 64, "which kernel attention takes"),
    ImpactRule("knobs.hash_seed", 62, "the order of sets and of what is derived from hash(str)"),
    ImpactRule("variables.PYTHONHASHSEED", 61, "the order of sets and of what is derived from hash(str)"),
    ImpactRule("knobs.fill_uninitialized_memory", 60, "what empty() holds"),
    ImpactRule("processes/*/environment", 58, "whatever the program does with these variables"),
    ImpactRule("knobs.*", 56, "a setting on which bits can depend"),
    ImpactRule("variables.OMP_*", 54, "the number of threads"),
    ImpactRule("variables.*", 50, "what the library that reads it does"),
    ImpactRule("held.*", 48, "how the run was held still"),
    ImpactRule("held", 48, "whether the run was held still"),
    ImpactRule("packages.numpy", 46, "NumPy's results and generators"),
    ImpactRule("packages.*", 30, "what comes from this package"),
    ImpactRule("machine.python", 28, "the order of sets, the random module's methods"),
    ImpactRule("machine.*", 10, "nothing by itself; the number of threads may follow from it"),
    ImpactRule("streams", 10, "which named streams there are"),
    ImpactRule("others", 56, "settings of single ranks"),
    ImpactRule("samerun", 5, "how values are digested"),
)  # fmt: skip


def find_impact_rule(path: str) -> ImpactRule:
    """The rule for a path; there is always one."""
    return next((rule for rule in RULES if fnmatchcase(path, rule.pattern)), ImpactRule(path, 20, "not known"))
