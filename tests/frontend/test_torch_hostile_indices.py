"""torch programs that take indices from data: legal ones as torch does, others an error and never a dead process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import relaxish  # noqa: E402
from relaxish.frontend.torch import from_exported_program  # noqa: E402
from relaxish.testing.fuzz.child import in_child  # noqa: E402

# name: (shape of the indices, the size they stay below, whether negative ones count from the end, the program)
PROGRAMS: dict[str, tuple[tuple[int, ...], int, bool, Callable[..., Any]]] = {
    "index": ((3,), 5, True, lambda x, i: x[i]),
    "index_columns": ((3,), 4, True, lambda x, i: x[:, i]),
    "index_pair": ((3,), 4, True, lambda x, i: x[i, i]),
    "index_put": ((3,), 5, True, lambda x, i: x.index_put((i,), x[:3] * 2, accumulate=True)),
    "index_put_pair": ((3,), 4, True, lambda x, i: x.index_put((i, i), x[:3, 0] * 2, accumulate=True)),
    "assign": ((1,), 5, True, lambda x, i: torch.ops.aten.index_put(x * 1, [i], x[:1] * 3)),
    "index_select": ((3,), 5, False, lambda x, i: torch.index_select(x, 0, i)),
    "gather": ((5, 2), 4, False, lambda x, i: torch.gather(x, 1, i)),
    "embedding": ((2, 3), 5, False, lambda x, i: torch.nn.functional.embedding(i, x)),
    "scatter_add": ((5, 2), 4, False, lambda x, i: torch.scatter_add(x, 1, i, x[:, :2])),
    "index_add": ((3,), 5, False, lambda x, i: torch.index_add(x, 0, i, x[:3])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_torch_or_an_error(name: str) -> None:
    shape, size, from_end, program = PROGRAMS[name]

    class Model(torch.nn.Module):
        def forward(self, x: Any, i: Any) -> Any:
            return program(x, i)

    def work() -> list[str]:
        rng = np.random.default_rng(0)
        x = torch.from_numpy(rng.standard_normal((5, 4)).astype("float32"))
        index = torch.from_numpy(rng.integers(-size if from_end else 0, size, shape))
        exported = torch.export.export(Model(), (x, index.abs() % size))
        run = relaxish.VirtualMachine(
            relaxish.build(from_exported_program(exported, unwrap_unit_return_tuple=True), "llvm"), relaxish.cpu()
        )["main"]
        np.testing.assert_allclose(run(x, index).numpy(), program(x, index).numpy(), rtol=1e-6)
        wrong = []
        for value in (size, -size - 1, 10**8, -(10**7), 2**31, -(2**63), 2**63 - 1, 2**62, 2**61 + 1, 2**62 + 1):
            bad = index.clone()
            bad.view(-1)[0] = value
            try:
                run(x, bad)
                wrong.append(f"nothing said of {value}")
            except IndexError as err:
                if "out of bounds" not in str(err):
                    wrong.append(f"{value}: {err}")
        return wrong

    assert in_child(work, 300) == []
