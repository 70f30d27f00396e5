"""Sums of columns in float64, added in the contract's order."""

import numpy as np

#: The least magnitude that rounds beyond the greatest float32.
BEYOND = float(2**128 - 2**103)


def column_sum(cell, inputs):
    """`y[c]`: the elements of column c, added row by row to zero.

    The sum is a float32 while it grows, so one that leaves its range is infinite from there on. NaN stays, and
    infinities of both signs make NaN.
    """
    total = np.zeros(cell["cols"])
    for row in inputs["x"]:
        total = total + row
        total = np.where(np.abs(total) >= BEYOND, np.copysign(np.inf, total), total)
    return {"y": total}
