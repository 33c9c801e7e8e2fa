"""One decoding step of a GPT-2 (124 M parameters, random weights) against torch, with the same cached context.

    python benchmarks/gpt2.py [--cores 1] [--context 256] [--layers 12]

Both keep keys and values of the context; torch runs its own fused attention. Reported are medians of alternating runs
and the largest difference of the logits.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from common import interleaved, pin, relative_error, save


class TorchDecoder:
    """The same decoder in torch, with a preallocated key-value cache."""

    def __init__(self, config: Any, weights: dict[str, Any]) -> None:
        import torch

        self.torch, self.f, self.config = torch, torch.nn.functional, config
        self.w = {k: torch.from_numpy(v) for k, v in weights.items()}
        shape = (config.layers, 2, 1, config.heads, config.positions, config.head_dim)
        self.cache = torch.zeros(shape)
        self.length = 0

    def forward(self, tokens: list[int]) -> Any:
        """Logits after the last token; the tokens stay cached."""
        config, f, w = self.config, self.f, self.w
        count, start = len(tokens), self.length
        x = w["wte.weight"][tokens] + w["wpe.weight"][start : start + count]
        for i in range(config.layers):
            p = f"h.{i}."
            y = f.layer_norm(x, (config.hidden,), w[p + "ln_1.weight"], w[p + "ln_1.bias"])
            qkv = f.linear(y, w[p + "c_attn.weight"], w[p + "c_attn.bias"])
            q, k, v = qkv.view(count, 3, config.heads, config.head_dim).permute(1, 2, 0, 3).unsqueeze(1)
            self.cache[i, 0, :, :, start : start + count] = k
            self.cache[i, 1, :, :, start : start + count] = v
            keys, values = self.cache[i, :, :, :, : start + count]
            out = f.scaled_dot_product_attention(q, keys, values, is_causal=count > 1)
            x = x + f.linear(out[0].transpose(0, 1).reshape(count, -1), w[p + "c_proj.weight"], w[p + "c_proj.bias"])
            y = f.layer_norm(x, (config.hidden,), w[p + "ln_2.weight"], w[p + "ln_2.bias"])
            y = f.gelu(f.linear(y, w[p + "c_fc.weight"], w[p + "c_fc.bias"]), approximate="tanh")
            x = x + f.linear(y, w[p + "c_out.weight"], w[p + "c_out.bias"])
        x = f.layer_norm(x[-1:], (config.hidden,), w["ln_f.weight"], w["ln_f.bias"])
        self.length += count
        return f.linear(x, w["wte.weight"])


def main() -> int:
    """Measure; the exit code is 1 if the step is slower than torch's or the logits differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--layers", type=int, default=12)
    args = parser.parse_args()
    pin(args.cores)
    import torch
    from relaxish.runtime import get_global_func
    from relaxish.testing.gpt2 import Config, Session, random_weights

    torch.set_num_threads(args.cores)
    config = Config(layers=args.layers)
    weights = random_weights(config)
    session = Session(config, weights, max_batch=1)
    peer = TorchDecoder(config, weights)
    prompt = [(7 * i) % config.vocab for i in range(args.context)]
    session.add(0)
    with torch.inference_mode():
        error = relative_error(session.prefill(0, prompt).numpy()[0], peer.forward(prompt).numpy())
        pop = get_global_func("vm.builtin.kv_state_popn")

        def ours() -> Any:
            logits = session.decode([0], [11])
            pop(session.cache, 0, 1)
            return logits

        def theirs() -> Any:
            logits = peer.forward([11])
            peer.length -= 1
            return logits

        error = max(error, relative_error(ours().numpy()[0], theirs().numpy()))
        times = interleaved({"relaxish": ours, "torch": theirs}, rounds=9)
    ratio = times["relaxish"] / times["torch"]
    row = {"context": args.context, "layers": args.layers, "relaxish ms": times["relaxish"] * 1e3,
           "torch ms": times["torch"] * 1e3, "ratio": ratio, "error": error}  # fmt: skip
    save(f"gpt2_{args.cores}core", [row])
    return int(ratio > 1.0 or error > 1e-3)


if __name__ == "__main__":
    sys.exit(main())
