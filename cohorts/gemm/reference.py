"""A product of two matrices in float64."""


def gemm(cell, inputs):
    """`c = op(a) @ op(b)`; products of float32 are exact in float64, and a sum of a few hundred is nearly so."""
    a, b = inputs["a"], inputs["b"]
    return {"c": (a.T if cell["ta"] else a) @ (b.T if cell["tb"] else b)}
