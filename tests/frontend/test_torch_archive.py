"""Reading ``.pt2`` files: nothing in them runs, and damaged ones are one clear error."""

from __future__ import annotations

import io
import json
import pickle
import random
import zipfile

import pytest

torch = pytest.importorskip("torch")

from frontend.torch_checks import imported, same  # noqa: E402
from relaxish.frontend.torch import from_exported_program  # noqa: E402
from relaxish.frontend.torch.archive import ArchiveError, load_exported  # noqa: E402
from relaxish.support.errors import RelaxishError  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.register_buffer("shift", torch.arange(4.0))

    def forward(self, x):
        return self.linear(x) * x.shape[0] + self.shift + torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=2, max=16)
    program = torch.export.export(Net(), (torch.randn(4, 3),), dynamic_shapes=({0: rows},))
    path = tmp_path_factory.mktemp("pt2") / "net.pt2"
    torch.export.save(program, path)
    return path


@pytest.fixture
def changed(saved, tmp_path):
    """Writes a copy of the archive in which ``change(name, data)`` gives new contents (None leaves a member out)."""

    def write(change, extra=()):
        path = tmp_path / "changed.pt2"
        with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w") as target:
            for info in source.infolist():
                data = change(info.filename, source.read(info))
                if data is not None:
                    target.writestr(info.filename, data)
            for name, data in extra:
                target.writestr(name, data)
        return path

    return write


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


def _edit_json(suffix, edit):
    def change(name, data):
        if not name.endswith(suffix):
            return data
        tree = json.loads(data)
        edit(tree)
        return json.dumps(tree).encode()

    return change


def _keep(_, data):
    return data


def test_a_program_is_read(saved):
    x = torch.randn(5, 3)
    (found,) = imported(from_exported_program(saved), x)
    same(found, load_exported(saved).module()(x))


def test_pickled_weights_are_refused(changed, tmp_path):
    mark = tmp_path / "mark"
    buffer = io.BytesIO()
    torch.save(Bomb(mark), buffer)

    def edit(tree):
        tree["config"]["linear.weight"]["use_pickle"] = True

    configured = _edit_json("model_weights_config.json", edit)
    path = changed(lambda n, d: buffer.getvalue() if n.endswith("weights/weight_0") else configured(n, d))
    with pytest.raises(ArchiveError, match="trust-pickle"):
        load_exported(path)
    assert not mark.exists()
    with pytest.raises(RelaxishError):
        load_exported(path, trust_pickle=True)
    assert mark.exists()  # so the file was one that runs code


def test_example_inputs_do_not_run(changed, tmp_path):
    mark = tmp_path / "mark"
    buffer = io.BytesIO()
    torch.save(((Bomb(mark),), {}), buffer)
    path = changed(lambda n, d: buffer.getvalue() if "sample_inputs" in n else d)
    assert "R.matmul" in from_exported_program(path).script()
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["net/data/weights/model.pt", "net/data/constants/custom_obj_0", "net/data/aotinductor/model/model.so"]
)
def test_members_that_run_are_refused(changed, tmp_path, name):
    mark = tmp_path / "mark"
    data = pickle.dumps(Bomb(mark))
    with pytest.raises(ArchiveError):
        load_exported(changed(_keep, [(name, data)]))
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    ["__import__('os').getpid()", "(1).__class__", "open('x')", "[c for c in ()]", "2**s33**9999", "Pow(9, 10**9)",
     "1 << 10**12", "lambda: 0", "s33.func", "Add('open(1)')", "Symbol('x', f=open)", "Symbol(Symbol('x'))",
     "Function('open')(1)", "Float('1', exec)"],
)  # fmt: skip
def test_sizes_are_arithmetic(changed, text):
    def edit(tree):
        nodes = [tree]
        while nodes:
            item = nodes.pop()
            if isinstance(item, dict):
                if "expr_str" in item:
                    item["expr_str"] = text
                nodes.extend(item.values())
            elif isinstance(item, list):
                nodes.extend(item)

    with pytest.raises(ArchiveError, match="not arithmetic"):
        load_exported(changed(_edit_json("models/model.json", edit)))


@pytest.mark.parametrize(
    "target",
    ["torch.load", "torch.hub.load", "torch.ops.load_library", "_operator.attrgetter", "_operator.call",
     "torch.ops.aten.from_file.default", "torch.serialization.pickle.loads", "math.__loader__.load_module"],
)  # fmt: skip
def test_only_operators_are_called(changed, target):
    def edit(tree):
        tree["graph_module"]["graph"]["nodes"][0]["target"] = target

    with pytest.raises(ArchiveError, match="not an operator"):
        load_exported(changed(_edit_json("models/model.json", edit)))


@pytest.mark.parametrize("name", ["../out", "/etc/out", "net/../../out", "net\\out", "C:/out"])
def test_names_stay_in_the_archive(changed, name):
    with pytest.raises(ArchiveError, match="leads out"):
        load_exported(changed(_keep, [(name, b"x")]))


def test_files_that_unpack_to_more_than_they_can(tmp_path):
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("net/data/weights/weight_0", bytes(1 << 26))
    with pytest.raises(ArchiveError, match="claim"):
        load_exported(path)


def test_doubled_members_and_links(changed, tmp_path):
    with pytest.warns(UserWarning), pytest.raises(ArchiveError, match="same name"):
        load_exported(changed(_keep, [("net/byteorder", b"little")]))
    link = zipfile.ZipInfo("net/link")
    link.external_attr = 0o120777 << 16
    path = tmp_path / "link.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(link, "/etc/passwd")
    with pytest.raises(ArchiveError, match="link"):
        load_exported(path)


def test_depth_of_json(changed):
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    with pytest.raises(ArchiveError, match="JSON|damaged"):
        load_exported(changed(lambda n, d: deep if n.endswith("models/model.json") else d))


def test_damaged_files_are_one_error(saved, tmp_path):
    """Bytes flipped, cut and doubled at random: an archive that is still read gives a program, else one error."""
    rng = random.Random(5)
    whole = saved.read_bytes()
    path = tmp_path / "damaged.pt2"
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 3, 20])):
            at = rng.randrange(len(data))
            kind = rng.randrange(3)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 200)]
            else:
                data[at:at] = data[at : at + 50]
        path.write_bytes(data)
        try:
            load_exported(path)
        except RelaxishError as err:
            assert str(path) in str(err)
