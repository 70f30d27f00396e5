"""The exact sum of two vectors. Inputs come as float64, which holds every float32 exactly."""


def vector_add(cell, inputs):
    """`c = a + b`: the sum of two float32 is exact in float64 unless one is over 2^29 times the other."""
    return {"c": inputs["a"] + inputs["b"]}
