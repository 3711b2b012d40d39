"""Linear algebra of numpy arrays, computed by torch.

Worker threads limit torch to one thread each. numpy's BLAS cannot be limited per thread: it would use all cores in
every worker at once, and the threads would mostly wait for each other.
"""

import numpy as np
import torch
from jaxtyping import Float


def multiply(a: Float[np.ndarray, "n k"], b: Float[np.ndarray, "k *m"]) -> Float[np.ndarray, "n *m"]:
    """Return a @ b; `b` is a matrix or a vector."""
    product: Float[np.ndarray, "n *m"] = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
    return product


def eigenvectors(
    matrices: Float[np.ndarray, "*batch n n"],
) -> tuple[Float[np.ndarray, "*batch n"], Float[np.ndarray, "*batch n n"]]:
    """Return the eigenvalues and eigenvectors of symmetric matrices."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(matrices))
    return values.numpy(), vectors.numpy()


def solve_positive(
    matrix: Float[np.ndarray, "n n"], values: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], float]:
    """Solve matrix @ x = values for a symmetric positive definite matrix; return x and log det(matrix)."""
    factor = torch.linalg.cholesky(torch.from_numpy(matrix))
    solution = torch.cholesky_solve(torch.from_numpy(values)[:, None], factor)[:, 0]
    return solution.numpy(), 2 * float(factor.diagonal().log().sum())


def least_squares(
    matrix: Float[np.ndarray, "n k"], values: Float[np.ndarray, " n"], smallest: float
) -> tuple[Float[np.ndarray, " k"], int]:
    """Return the solution of least norm, and the rank: singular values below `smallest` x the largest count as 0."""
    found = torch.linalg.lstsq(
        torch.from_numpy(matrix), torch.from_numpy(values)[:, None], rcond=smallest, driver="gelsd"
    )
    return found.solution[:, 0].numpy(), int(found.rank)
