"""The seed of `hash(str)`, which orders sets and everything filled from them."""

from samerun.check.plan import Plan, Variation


def hash_seed(plan: Plan, vary: bool) -> Plan:
    """Vary the seed of ``hash(str)``.

    What can go wrong: a loop over a set of names feeds a model in another order; a seed is made with hash().
    """
    return plan.with_environment(PYTHONHASHSEED="2" if vary else "1")


VARIATION = Variation("hash_seed", "environment", "PYTHONHASHSEED 1 -> 2", hash_seed, "hash-order")
