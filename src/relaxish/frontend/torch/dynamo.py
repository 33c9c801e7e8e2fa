"""``torch.compile`` with this compiler, and capturing the graphs that it would compile."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import torch

from ...ir import IRModule
from ...runtime import VMExecutable
from ...support.entry_points import load
from ...support.errors import RelaxishError
from ...support.log import get_logger
from ..common import build_module, need, Pipeline
from .compiled_graph import placeholders
from .fx import from_fx
from .partition import compile_graph, forget_warnings

__all__ = ["DynamoOptions", "dynamo_capture_subgraphs", "relax_dynamo", "relaxish_backend"]

_log = get_logger("frontend.torch")
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# How often constants are compiled in anew because they were written to, before they become inputs.
_REFREEZES = 3


@dataclass(frozen=True)
class DynamoOptions:
    """Options of ``torch.compile(..., backend="relaxish", options={...})``."""

    #: What the code is for, as ``relaxish.build`` takes it.
    target: str = "llvm"
    #: A Relax pass, or the name of a pipeline, in the place of the target's own.
    pipeline: Pipeline | None = None
    #: Tune the kernels; what ``mode="max-autotune"`` sets.
    max_autotune: bool = False
    #: Trials of the tuner for each graph, and where its records are kept.
    trials: int = 256
    work_dir: str = "tuning_logs"
    #: Compile the weights and buffers of inference in as constants, so that they are packed once.
    freeze: bool = False

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> DynamoOptions:
        """The options of a call of ``torch.compile``. Raises RelaxishError for unknown ones."""
        known = [f.name for f in fields(cls)]
        unknown = sorted(set(options or {}) - set(known))
        if unknown:
            raise RelaxishError(
                f"unknown options of the backend relaxish: {', '.join(unknown)}; there are {', '.join(known)}"
            )
        if mode is not None and mode not in _MODES:
            raise RelaxishError(f"unknown mode {mode!r} of the backend relaxish; there are {', '.join(_MODES)}")
        given = dict(options or {})
        if mode is not None and mode.startswith("max-autotune"):
            given["max_autotune"] = True
        return cls(**given)

    def build(self, mod: IRModule) -> VMExecutable:
        """Compile an imported graph."""
        if not self.max_autotune or self.pipeline is not None:
            return build_module(mod, self.target, self.pipeline)
        from ...meta_schedule.relax_integration import tune_relax

        kernels = load("kernel_pipeline")(self.target)(mod)
        trials, where = self.trials, self.work_dir
        with tune_relax(kernels, {}, self.target, where, trials, baselines=True):
            return build_module(mod, self.target)


def relaxish_backend(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend ``"relaxish"`` of ``torch.compile``: ``torch.compile(model, backend="relaxish")``.

    The name is found by its entry point where the package is installed; ``backend=relaxish_backend`` needs none.
    ``mode`` and ``options`` are those of ``torch.compile``; options are the fields of :class:`DynamoOptions`.

    PyTorch makes the graph functional and derives its backward pass; both are compiled here. Writes to inputs and
    buffers are carried out and results carry gradients, as without compiling. Sizes that PyTorch takes for dynamic are
    symbolic in the compiled program, which runs for all of them. Operators without a converter and those that draw
    random numbers are run by PyTorch, and a warning in the log names them.
    """
    need("torch", "torch")
    return _compiled(DynamoOptions.of(mode, options), graph_module, example_inputs)


# ``torch._dynamo.reset()`` calls it.
relaxish_backend.reset = forget_warnings  # type: ignore[attr-defined]


def relax_dynamo(pipeline: Pipeline | None = None) -> Callable[..., Any]:
    """A backend for ``torch.compile``: :func:`relaxish_backend` with a pipeline of its own.

    ``pipeline`` is a Relax pass (or the name of a pipeline) that takes the place of the default one.

    ::

        fast = torch.compile(model, backend=relax_dynamo())
    """
    return functools.partial(_compiled, DynamoOptions(pipeline=pipeline))


def _compiled(
    options: DynamoOptions, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def graph(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compile_graph(module, options.build))

    def inference(module: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        constant = _constants(module) if options.freeze else []
        return make_boxed_func(_Freezing(module, options, constant)) if constant else graph(module, examples)

    backend = aot_autograd(
        fw_compiler=graph,
        bw_compiler=graph,
        inference_compiler=inference,
        decompositions=_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    with _plain_attention(example_inputs):
        made: Callable[..., Any] = backend(graph_module, example_inputs)
    return made


def _plain_attention(examples: Sequence[Any]) -> AbstractContextManager[object]:
    """Attention whose gradient is wanted, as products and a softmax: its own operator has a backward pass that takes
    what only PyTorch's kernel gives."""
    from torch.nn.attention import sdpa_kernel, SDPBackend

    wanted = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in examples)
    made: AbstractContextManager[object] = sdpa_kernel(SDPBackend.MATH) if wanted else nullcontext()
    return made


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """PyTorch's ways to take operators apart, for those that have no converter. Random numbers stay its own."""
    from torch._decomp import decomposition_table

    from .exported_program import name_of
    from .table import find

    return {
        operator: rule
        for operator, rule in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload)
        and find(name_of(operator)) is None
        and torch.Tag.nondeterministic_seeded not in operator.tags
    }


def _constants(module: torch.fx.GraphModule) -> list[int]:
    """Positions of the inputs of a graph that are weights and buffers of the model."""
    context = torch._guards.TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    return [
        k
        for k in (metadata.static_input_indices if metadata is not None else [])
        if k < len(placeholders(module.graph))
    ]


class _Freezing:
    """Runs a graph of inference with weights that are constants of the compiled program.

    Weights that were written to since are seen by their version or address, and the program is compiled again; after
    some times they become inputs.
    """

    def __init__(self, module: torch.fx.GraphModule, options: DynamoOptions, constant: Sequence[int]) -> None:
        self._module, self._options, self._constant = module, options, constant
        self._state: list[tuple[int, int]] | None = None
        self._run: Callable[..., Any] | None = None
        self._made = 0

    def __call__(self, *args: Any) -> object:
        if self._made > _REFREEZES and self._run is not None:
            return self._run(*args)
        weights = [args[k] for k in self._constant]
        # Tensors of inference mode have no version: whether they were written to cannot be seen.
        state = [] if any(w.is_inference() for w in weights) else [(w._version, w.data_ptr()) for w in weights]
        if self._run is None or state != self._state:
            self._made += 1
            frozen = {}
            if self._made <= _REFREEZES and state:
                names = [node.name for node in placeholders(self._module.graph)]
                frozen = {names[k]: args[k].detach() for k in self._constant}
            else:
                self._made = _REFREEZES + 1
                _log.info("weights that change between calls are inputs of the compiled program")
            self._run = compile_graph(self._module, self._options.build, frozen)
            self._state = state
        return self._run(*args)


def _input_info(example_inputs: Sequence[torch.Tensor]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(int(d) for d in x.shape), str(x.dtype).removeprefix("torch.")) for x in example_inputs]


def dynamo_capture_subgraphs(model: Callable[..., object], *params: Any, **kwargs: Any) -> IRModule:
    """Run a model once under TorchDynamo and import every graph it captures.

    Returns one module with functions ``subgraph_0``, ``subgraph_1``, ...; ``keep_params_as_input`` is that of
    :func:`from_fx`, other keyword arguments go to the model.
    """
    need("torch", "torch")
    import torch

    keep_params = bool(kwargs.pop("keep_params_as_input", False))
    captured = IRModule()

    def capture(graph_module: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., object]:
        mod = from_fx(
            graph_module,
            _input_info(example_inputs),
            keep_params_as_input=keep_params,
            unwrap_unit_return_tuple=True,
        )
        name = f"subgraph_{len(captured.functions)}"
        captured[name] = mod["main"].with_attr("global_symbol", name)
        return graph_module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=capture)(*params, **kwargs)
    return captured
