"""Points in the unit square."""
from functools import cache

from scipy.stats import qmc


@cache
def sequence():
    engine = qmc.Sobol(d=2)
    return engine


def points(count):
    return sequence().random(count)
