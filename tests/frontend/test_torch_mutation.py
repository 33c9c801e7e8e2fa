"""Exported programs that write in place: through views, by masks, to inputs and to buffers."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from frontend.torch_checks import check, export, imported, same  # noqa: E402
import relaxish  # noqa: E402
from relaxish.frontend.torch import ExportedModel, from_exported_program  # noqa: E402
from relaxish.frontend.torch.mutation import functional  # noqa: E402
from relaxish.support.errors import OpNotImplemented, RelaxishError  # noqa: E402


def _seeded(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) * 7 + len(shape)))


def _column(x):
    y = x * 2
    y[:, 0] = 0
    return y


def _times_column(x):
    h = x + 1
    h[:, 1].mul_(3)
    return h


def _flat(x):
    h = x + 1
    h.view(-1)[2:5].fill_(7)
    return h


def _copied_rows(x):
    h = x * 3
    h[:2].copy_(x[2:])
    return h


def _steps(x):
    h = x * 3
    h[1::2, -3:-1] = x[:2, :2]
    return h


def _every_other(x):
    h = x * 3
    h[1::2, -3:-1] = 8
    h[:-1].neg_()
    h[-1] = x[0]
    return h


def _transposed(x):
    h = x * 3
    h.t()[1].add_(x[:, 0])
    return h


def _diagonal(x):
    h = x * 3
    h.diagonal(1).fill_(5)
    return h, h.diagonal(-1)


def _aliases(x):
    h = x + 0
    first, rest = h[0], h[1:]
    first.mul_(2)
    rest.sub_(first)
    h.neg_()
    return first, rest, h


def _two_levels(x):
    h = x + 0
    h[1:][1:].unsqueeze(0).squeeze(0)[:, 2].zero_()
    return h


def _split(x):
    h = x + 0
    left, right = h.chunk(2, 1)
    left.add_(right)
    right.mul_(left)
    return h


def _permuted(x):
    h = (x + 0).reshape(2, 2, 6)
    h.permute(2, 0, 1)[3].fill_(1)
    return h.view(-1)


VIEWS = (_column, _times_column, _flat, _copied_rows, _steps, _every_other, _transposed, _diagonal, _aliases, _two_levels, _split,
         _permuted)  # fmt: skip


@pytest.mark.parametrize("function", VIEWS, ids=lambda f: f.__name__)
def test_writes_through_views(function):
    check(function, _seeded(4, 6))


@pytest.mark.parametrize("function", [_column, _times_column, _every_other, _aliases, _split], ids=lambda f: f.__name__)
def test_writes_through_views_of_unknown_size(function):
    rows = torch.export.Dim("rows", min=4, max=64)
    program = export(function, _seeded(6, 6), dynamic_shapes=(({0: rows},),))
    machine = relaxish.VirtualMachine(relaxish.build(from_exported_program(program), "llvm"), relaxish.cpu())
    for count in (4, 9):
        x = _seeded(count, 6)
        wanted = function(x)
        found = machine["main"](relaxish.nd.array(x.numpy()))
        for have, want in zip(found, wanted if isinstance(wanted, tuple) else [wanted]):
            same(have.numpy(), want)


def _mask(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(len(shape))) > 0.5


def _put(at, value, accumulate=False):
    def function(x, *masks):
        y = x.clone()
        new = value if isinstance(value, torch.Tensor) else torch.tensor(value)
        return torch.ops.aten.index_put_(y, list(at(*masks)), new, accumulate)

    return function


MASKS = {
    "all": (lambda m: (m,), 0.0, [(4, 6)]),
    "rows": (lambda m: (m,), 2.5, [(4,)]),
    "rows_vector": (lambda m: (m,), torch.arange(6.0), [(4,)]),
    "columns": (lambda m: (None, m), -1.0, [(6,)]),
    "columns_vector": (lambda m: (None, m), torch.arange(4.0).reshape(4, 1), [(6,)]),
    "rows_and_column": (lambda m: (m, torch.tensor(3)), 9.0, [(4,)]),
    "row_and_columns": (lambda m: (torch.tensor(-1), m), 9.0, [(6,)]),
    "ones_each": (lambda m: (m,), torch.arange(24.0), [(4, 6)]),
}  # fmt: skip


@pytest.mark.parametrize("accumulate", [False, True], ids=["put", "accumulate"])
@pytest.mark.parametrize("name", MASKS)
def test_index_put_by_masks(name, accumulate):
    at, value, shapes = MASKS[name]
    masks = [_mask(*shape) for shape in shapes]
    if name == "ones_each":  # as many values as the mask of this test holds
        value = value[: int(masks[0].sum())] + 1
    check(_put(at, value, accumulate), _seeded(4, 6), *masks)


def test_two_masks_make_pairs():
    rows, columns = torch.tensor([True, False, True, True]), torch.tensor([False, True, False, True, True, False])
    check(_put(lambda r, c: (r, c), torch.tensor([1.0, 2.0, 3.0]), True), _seeded(4, 6), rows, columns)


def test_masks_as_python_writes_them():
    def function(x, mask):
        y = x.clone()
        y[mask] = 0
        y[:, 2][mask[:, 0]] = 4
        return y

    check(function, _seeded(4, 6), _mask(4, 6))


def test_a_mask_of_unknown_size():
    def function(x, mask):
        y = torch.ones(4, 5)
        y.index_put_((mask,), torch.tensor(0.5), accumulate=True)
        y[:, torch.tensor([0, 3])] = 0
        return y + x.sum()

    rows = torch.export.Dim("rows", min=2, max=9)
    program = export(function, _seeded(4, 5), _mask(4, 5), dynamic_shapes=(({0: rows}, {0: rows}),))
    machine = relaxish.VirtualMachine(relaxish.build(from_exported_program(program), "llvm"), relaxish.cpu())
    inputs = [relaxish.nd.array(v.numpy()) for v in (_seeded(4, 5), _mask(4, 5))]
    same(machine["main"](*inputs)[0].numpy(), function(_seeded(4, 5), _mask(4, 5)))
    with pytest.raises(RelaxishError):
        machine["main"](*[relaxish.nd.array(v.numpy()) for v in (_seeded(3, 5), _mask(3, 5))])


@pytest.mark.parametrize("above", [0.0, 9.0], ids=["some", "none"])
def test_what_masks_select_may_be_nothing(above):
    def add(x, mask):
        y = x * 2
        y[y > above] += 1
        return y, x.masked_scatter(mask, y[mask])

    check(add, _seeded(4, 6), _seeded(4, 6) > above)


def test_types_are_promoted_and_sizes_unknown():
    def function(x, y):
        x.addcmul_(x.clone(), y, value=0.5)
        return x.roll(1, 0), x.roll((2, -1), (0, 1)), torch.cat([y, x, y > 0]), torch.stack([y, x])

    rows = torch.export.Dim("rows", min=2, max=9)
    inputs = _seeded(4, 5), torch.arange(20).reshape(4, 5)
    check(function, *inputs)
    check(function, *inputs, dynamic_shapes=(({0: rows}, {0: rows}),))


def test_indices_that_count_from_the_end():
    def function(x, rows):
        y = x.clone()
        y[rows, :, 1] = 5
        y[rows] += 1
        return y, x[rows], x[rows, :, -rows - 1], x[:, rows]

    check(function, _seeded(4, 4, 5), torch.tensor([-1, 0, -3]))


def test_a_returned_input_is_returned_once():
    def function(x):
        x.tril_(1)
        return x

    mod = check(function, _seeded(4, 6))
    assert "mutated" not in (mod["main"].attrs or {})


def test_inputs_that_are_written_to():
    def function(x, y):
        x.add_(1)
        y[0] = 9
        return x * y

    mod = check(function, _seeded(3, 4), _seeded(4, 4)[:3])
    assert sorted(int(v) for v in mod["main"].attrs["mutated"].values()) == [1, 2]


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x):
        self.seen += x.sum(0)
        self.cache[1:3] = x[:2]
        return x * self.seen, self.cache


def test_copies_that_broaden_and_cast():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(4, 5))

        def forward(self, x, y):
            self.rows.copy_(y)
            y.copy_(x[0])
            x.copy_(torch.ones(1, 5, dtype=torch.float64) / 3)
            return self.rows[:, 1:3]

    check(Net(), _seeded(4, 5), torch.tensor([3, -1, 4, 1, -5]))


def test_buffers_that_are_written_to():
    mod = check(Counter(), _seeded(5, 3))
    assert {str(k): int(v) for k, v in mod["main"].attrs["mutated"].items()} == {"seen": 2, "cache": 1}


def test_state_can_be_passed_on():
    program = export(Counter(), _seeded(5, 3))
    mod = from_exported_program(program, keep_params_as_input=True)
    func = mod["main"]
    state = [torch.from_numpy(p.numpy().copy()) for p in func.attrs["params"]]
    names = [p.name_hint for p in func.params[int(func.attrs["num_input"]) :]]
    assert names == ["b_seen", "b_cache"]
    module = Counter()
    bare = relaxish.frontend.detach_params(mod)[0]
    for step in range(3):
        x = _seeded(5, 3) + step
        found = imported(bare, x, *state)
        for have, want in zip(found, module(x)):
            same(have, want)
        state = [torch.from_numpy(found[int(func.attrs["mutated"][name])].copy()) for name in ("seen", "cache")]


def test_models_with_state():
    model, module = ExportedModel(export(Counter(), _seeded(5, 3))), Counter()
    for step in range(3):
        x = _seeded(5, 3) + step
        for have, want in zip(model(x), module(x), strict=True):
            same(have.numpy(), want)
        for name, value in module.named_buffers():
            same(model.buffers[name].numpy(), value)


def test_models_that_write_to_their_inputs():
    def function(x, y):
        x[1:].add_(y[0])
        y.t_().neg_()
        return x.sum()

    model = ExportedModel(export(function, _seeded(3, 4), _seeded(4, 4)))
    inputs, same_inputs = [[_seeded(4, 3).t(), _seeded(4, 4)] for _ in range(2)]
    same(model(*inputs).numpy(), function(*same_inputs))
    same(inputs[0].numpy(), same_inputs[0])
    same(inputs[1].numpy(), same_inputs[1])
    with pytest.raises(RelaxishError, match="takes 2 tensors"):
        model(inputs[0])


def test_models_that_return_the_input_they_write_to():
    def function(x):
        return x.add_(1)

    model = ExportedModel(export(function, _seeded(3)))
    x = _seeded(3)
    same(model(x).numpy(), _seeded(3) + 1)
    same(x.numpy(), _seeded(3) + 1)


def test_batch_norm_in_training():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(3)
            self.norm.weight.data.uniform_(0.5, 2)

        def forward(self, x):
            return self.norm(x)

    torch.manual_seed(0)
    mod = check(Net().train(), _seeded(4, 3, 5, 5) * 3 + 1)
    assert set(map(str, mod["main"].attrs["mutated"])) == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"
    }  # fmt: skip
    without = torch.nn.BatchNorm1d(3, track_running_stats=False).train()
    check(without, _seeded(4, 3))


def test_functional_programs_that_were_made_so_by_the_user():
    program = export(Counter(), _seeded(5, 3)).run_decompositions()
    mod = from_exported_program(program)
    assert len(mod["main"].ret_struct_info.fields) == 3


def test_writes_without_a_functional_form_are_refused():
    with torch.library._scoped_library("relaxish_tests", "FRAGMENT") as library:
        library.define("overwrite(Tensor(a!) x) -> Tensor(a!)")

        def overwrite(x):
            return x.fill_(1)

        library.impl("overwrite", overwrite, "CompositeExplicitAutograd")
        program = export(lambda x: torch.ops.relaxish_tests.overwrite(x + 1) * 2, _seeded(3))
        with pytest.raises(OpNotImplemented, match="overwrite"):
            from_exported_program(program)


def test_what_is_not_written_to_is_imported_as_before():
    def function(x):
        return torch.relu(x).view(2, -1)

    program = export(function, _seeded(4, 6))
    assert functional(program) is program
    text = from_exported_program(program).script()
    assert "mutated" not in text and "R.nn.relu" in text and "R.reshape" in text


def test_writes_that_nobody_sees_are_not_taken_apart():
    """Activations in place behind a layer are the functional ones; a second reader of what they write to is not passed over."""

    class Passing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)
            self.norm = torch.nn.BatchNorm2d(4).eval()

        def forward(self, x):
            y = torch.nn.functional.relu_(self.norm(self.conv(x)))
            y = torch.nn.functional.dropout(y.flatten(1), 0.8, training=False, inplace=True).reshape(y.shape)
            return torch.nn.functional.hardtanh_(self.conv(x).add_(y))

    class Seen(torch.nn.Module):
        def forward(self, x):
            y = torch.tanh(x)
            z = y[0]
            y.mul_(x)
            return y, z, torch.nn.functional.dropout(y, training=False).relu_() + y

    x = torch.randn(2, 3, 5, 5)
    program = torch.export.export(Passing().eval(), (x,))
    assert functional(program) is program
    seen = torch.export.export(Seen(), (x,))
    assert functional(seen) is not seen
    for module, exported in ((Passing().eval(), None), (Seen(), seen)):
        exported = exported or torch.export.export(module, (x,))
        vm = relaxish.VirtualMachine(relaxish.build(from_exported_program(exported), "llvm"), relaxish.cpu())
        expected = module(x.clone())
        expected = expected if isinstance(expected, tuple) else (expected,)
        for got, want in zip(vm["main"](relaxish.nd.array(x.numpy())), expected, strict=True):
            np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-5, atol=1e-5)
