"""Every rule, in the order of codes."""

from __future__ import annotations

from samerun.lint import (
    generator_rules,
    loading_rules,
    order_rules,
    seed_rules,
    setting_rules,
)
from samerun.lint.rule import Rule

RULES: tuple[Rule, ...] = (
    generator_rules.UNSEEDED_NUMPY_GENERATOR,
    generator_rules.UNSEEDED_PYTHON_GENERATOR,
    generator_rules.UNSEEDED_TORCH_GENERATOR,
    generator_rules.PARTLY_SEEDED_PROGRAM,
    generator_rules.ENTROPY_RESEED,
    seed_rules.CLOCK_SEED,
    seed_rules.ENTROPY_SEED,
    seed_rules.HASH_SEED,
    seed_rules.ADDRESS_SEED,
    seed_rules.DRAWN_SEED,
    seed_rules.FALSY_SEED,
    seed_rules.LATE_HASH_SEED,
    seed_rules.CONSTANT_WORKER_SEED,
    seed_rules.MODEL_BEFORE_SEED,
    order_rules.UNSORTED_LISTING,
    order_rules.SET_ORDER,
    order_rules.SORT_BY_ADDRESS,
    order_rules.SET_OF_MODULES,
    order_rules.COMPLETION_ORDER,
    order_rules.HASH_BUCKET,
    order_rules.ARRIVAL_ORDER,
    order_rules.SHARED_UPDATES,
    order_rules.WRITTEN_LISTING,
    setting_rules.WARN_ONLY,
    setting_rules.BENCHMARK_BESIDE_DETERMINISTIC,
    setting_rules.LATE_CUBLAS_CONFIGURATION,
    setting_rules.FRESH_MEMORY,
    loading_rules.UNSEEDED_SPLIT,
    loading_rules.UNSEEDED_SKLEARN,
    loading_rules.MISSING_SET_EPOCH,
    loading_rules.DRAW_IN_GETITEM,
    loading_rules.KEPT_GENERATOR,
    loading_rules.UNSHARED_STREAM,
    loading_rules.CHECKPOINT_WITHOUT_GENERATORS,
    loading_rules.CHECKPOINT_WITHOUT_SCHEDULER,
    setting_rules.RECOMPUTATION_WITHOUT_RNG,
    setting_rules.DRAW_UNDER_CLOCK,
    setting_rules.RESEED_BESIDE_TRAINING,
)
