"""Outside products of two matrices, measured for the record: cuBLAS by its maker's Python bindings, and a framework.

Rows lie side by side here and columns in cuBLAS, so that the operands change places: the same bytes read its way are
turned over, and turned over `c = op(a) @ op(b)` reads `op(b) @ op(a)`.
"""

from functools import lru_cache

import numpy as np

WORKSPACE_BYTES = 32 << 20  # What cuBLAS asks for on boards of its newer architectures.


def pedantic(cell, stream, buffers):
    """float32 as written, no shortcut."""
    return _gemm_ex(cell, stream, buffers, "COMPUTE_32F_PEDANTIC")


def fast(cell, stream, buffers):
    """float32, with whatever algorithm the library likes."""
    return _gemm_ex(cell, stream, buffers, "COMPUTE_32F")


def tf32(cell, stream, buffers):
    """Operands rounded to ten bits of fraction for the tensor cores."""
    return _gemm_ex(cell, stream, buffers, "COMPUTE_32F_FAST_TF32")


def torch_matmul(cell, stream, buffers):
    """The framework's call on the stream that is measured, float32 products as its `highest` setting means them."""
    import torch

    torch.set_float32_matmul_precision("highest")
    a, b, c = (torch.as_tensor(buffers[name], device="cuda") for name in "abc")
    left, right = a.T if cell["ta"] else a, b.T if cell["tb"] else b
    outside = torch.cuda.ExternalStream(stream)

    def enqueue():
        with torch.cuda.stream(outside):
            torch.matmul(left, right, out=c)

    return enqueue, f"torch {torch.__version__}"


def _gemm_ex(cell, stream, buffers, compute):
    from nvmath import CudaDataType
    from nvmath.bindings import cublas

    handle, library = _handle(stream)
    one, zero = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    a, b, c = (buffers[name] for name in "abc")
    real, mode = int(CudaDataType.CUDA_R_32F), int(cublas.ComputeType[compute])
    turned = [int(cublas.Operation.T if cell[name] else cublas.Operation.N) for name in ("tb", "ta")]
    first, second = (b.address, real, b.shape[-1]), (a.address, real, a.shape[-1])
    sizes = (cell["n"], cell["m"], cell["k"])
    result = (c.address, real, cell["n"], mode, -1)  # CUBLAS_GEMM_DEFAULT

    def enqueue():
        cublas.gemm_ex(handle, *turned, *sizes, one.ctypes.data, *first, *second, zero.ctypes.data, *result)

    return enqueue, library


@lru_cache
def _handle(stream):
    """One handle a stream, with memory of its own, so that a captured product allocates nothing."""
    import nvmath
    from cuda.bindings import driver
    from nvmath.bindings import cublas

    handle = cublas.create()
    cublas.set_stream(handle, stream)
    error, memory = driver.cuMemAlloc(WORKSPACE_BYTES)
    if int(error):
        raise MemoryError(f"{WORKSPACE_BYTES} bytes for cuBLAS: {error}")
    cublas.set_workspace(handle, int(memory), WORKSPACE_BYTES)
    return handle, f"cuBLAS {cublas.get_version(handle)} by nvmath-python {nvmath.__version__}"
