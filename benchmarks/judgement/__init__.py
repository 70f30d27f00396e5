"""False admissions and power of gates trial and timing on planted gains, beside other tools on the same kernels."""
