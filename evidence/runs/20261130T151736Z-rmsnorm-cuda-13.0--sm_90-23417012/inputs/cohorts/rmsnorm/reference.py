"""Root mean square normalisation in float64, where the square of every float32 is finite and exact."""

import numpy as np


def rmsnorm(cell, inputs):
    """`y = x / sqrt(mean(x^2) + eps) * w`, each row for itself.

    A row that holds NaN is NaN throughout. Where a row holds infinities its root is infinite: they become NaN, the
    finite rest becomes zero of its sign.
    """
    x = inputs["x"]
    root = np.sqrt((x * x).mean(axis=1, keepdims=True) + inputs["eps"])
    return {"y": x / root * inputs["w"]}
