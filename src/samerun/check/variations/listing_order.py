"""The order in which the file system lists a directory."""

from samerun.check.plan import Plan, Variation


def listing_order(plan: Plan, vary: bool) -> Plan:
    """Vary the order of directory listings.

    What can go wrong: files are split into training and test, or classes numbered, in listing order. The
    order is a property of the file system: it changes with the machine, not with the run.
    """
    return plan.with_watch(listing_order="reversed" if vary else "sorted")


VARIATION = Variation(
    "listing_order", "environment", "directory listings sorted -> reversed", listing_order, "listing-order"
)
