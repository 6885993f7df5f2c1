"""Tokens per second of models that speak through a language model, beside transformers' own ``generate``.

``python benchmarks/generate.py`` takes random weights of the published 0.6B shapes. Eight clips arrive at once: here as
eight callers of one engine, there one after another and as one batch, in each dtype. Everybody hears the same sound and
says as many tokens. Exits with 1 when the engine is less than MIN_RATIO times as fast as the best of the others.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from attrs import evolve, frozen

from asr_core import audio
from asr_core.api import Transcriber, load
from asr_core.engines.protocol import Finished
from asr_core.kernels import fastest_dtype
from asr_core.runtime.requests import generation_request
from asr_core.testing.tokenizer import train_tokenizer
from asr_core.types import ClipContext, Samples, TranscriptionRequest

RATE = 16_000
CALLERS, TOKENS, MIN_RATIO = 8, 48, 1.5
CLIPS = sorted((Path(__file__).parents[1] / "tests" / "data" / "librivox").glob("*.wav"))
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{% for part in message.content %}{{ 'HEARD' if part.type == 'audio' else part.text }}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
ENDS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# fmt: off
TEXT = {"model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128,
        "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True,
        "max_position_embeddings": 40_960}
QWEN_AUDIO = {"model_type": "qwen3_asr_encoder", "encoder_layers": 18, "encoder_attention_heads": 14, "d_model": 896,
              "encoder_ffn_dim": 3584, "output_dim": 1024}
# fmt: on


@frozen
class Model:
    """Classes of transformers that begin with ``prefix``; ``heard`` stands for the sound in a prompt, by role."""

    prefix: str
    heard: dict[str, str]
    sizes: dict[str, Any]

    def part(self, name: str) -> Any:
        return getattr(transformers, self.prefix + name)

    def save(self, directory: Path, layers: int) -> None:
        """A whole checkpoint with random weights in bfloat16."""
        tokenizer = transformers.Qwen2Tokenizer(
            tokenizer_object=train_tokenizer([*ENDS, *self.heard.values()], ["<asr_text>"]),
            extra_special_tokens=self.heard,
            eos_token=ENDS[2],
            pad_token=ENDS[0],
        )
        template = TEMPLATE.replace("HEARD", "".join(self.heard.values()))
        processor = self.part("Processor")(self.part("FeatureExtractor")(), tokenizer, chat_template=template)
        token = tokenizer.convert_tokens_to_ids(self.heard["audio_token"])
        text = {**TEXT, "num_hidden_layers": layers}
        config = self.part("Config")(**self.sizes, text_config=text, audio_token_id=token)
        torch.manual_seed(0)
        self.part("ForConditionalGeneration")._from_config(config, dtype=torch.bfloat16).save_pretrained(directory)
        processor.save_pretrained(directory)


AUDIO = {"audio_bos_token": "<|audio_start|>", "audio_token": "<|audio_pad|>", "audio_eos_token": "<|audio_end|>"}
MODELS = {
    "qwen3-asr-0.6b": Model("Qwen3ASR", AUDIO, {"audio_config": QWEN_AUDIO}),
    "fun-asr-nano": Model("FunAsrNano", {"audio_token": "<|object_ref_start|>"}, {}),
    "moss-transcribe-diarize": Model("MossTranscribeDiarize", AUDIO, {}),
}


class Theirs:
    """transformers' processor and module, which know of no end."""

    def __init__(self, model: Model, directory: str, dtype: str) -> None:
        kind = model.part("ForConditionalGeneration")
        self.processor = model.part("Processor").from_pretrained(directory)
        self.module = kind.from_pretrained(directory, dtype=getattr(torch, dtype)).eval()
        self.module.generation_config.eos_token_id = None

    def say(self, at_once: int, clips: Sequence[Samples], tokens: int) -> None:
        options = {"sampling_rate": RATE, "padding": True, "padding_side": "left", "return_tensors": "pt"}
        for batch in (list(clips[first : first + at_once]) for first in range(0, len(clips), at_once)):
            inputs = self.processor.apply_transcription_request(batch, processor_kwargs=options)
            inputs = inputs.to("cpu", self.module.dtype)
            said = self.module.generate(**inputs, do_sample=False, max_new_tokens=tokens)
            assert said.shape == (len(batch), inputs["input_ids"].shape[1] + tokens)


async def ours(transcriber: Transcriber, clips: Sequence[Samples], tokens: int) -> None:
    """All clips at once, through the plugin's hooks, the encoder service and the engine."""
    served = transcriber.served

    async def say(caller: int, samples: Samples) -> None:
        clip, request = audio.from_array(samples, RATE, RATE).clip(), TranscriptionRequest()
        prepared = await asyncio.to_thread(served.hooks.prepare_clip, served.model, clip, request, ClipContext())
        encoded = dict(zip(prepared.spans, await served.encoder.encode(clip, prepared.spans), strict=True))
        asked = evolve(generation_request(prepared, encoded, str(caller)), budget=tokens, stop=frozenset())
        items = [item async for item in served.engine.generate(asked)]
        assert sum(not isinstance(item, Finished) for item in items) == tokens

    await asyncio.gather(*(say(number, samples) for number, samples in enumerate(clips)))


def measure(model: Model, arguments: argparse.Namespace) -> dict[str, float]:
    """Tokens per second of every way, ours first; the median of all rounds."""
    rng, recorded = np.random.default_rng(0), [audio.load(path, RATE).samples for path in CLIPS]
    ways: dict[str, Callable[[Sequence[Samples], int], Any]] = {}
    with tempfile.TemporaryDirectory() as path, torch.inference_mode():
        model.save(Path(path), arguments.layers)
        with load(path, device="cpu", dtype=arguments.dtype) as transcriber:
            ways[f"here, {transcriber.served.model.dtype}"] = lambda *given: asyncio.run(ours(transcriber, *given))
            for dtype in arguments.dtypes:
                theirs = Theirs(model, path, dtype)
                ways |= {f"generate, {dtype}, {n} at once": partial(theirs.say, n) for n in (1, CALLERS)}
            seconds: dict[str, list[float]] = {name: [] for name in ways}
            for number in range(arguments.rounds + 1):
                # New in every round, so that no cache knows them; the first round only warms up.
                noise = rng.normal(0, 1e-5, CALLERS).astype(np.float32)
                clips = [recorded[n % len(recorded)] + noise[n] for n in range(CALLERS)]
                for name, say in ways.items():
                    start = time.perf_counter()
                    say(clips, TOKENS if number else 2)
                    seconds[name].append(time.perf_counter() - start)
    return {name: CALLERS * TOKENS / statistics.median(taken[1:]) for name, taken in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=28, help="of the language model; fewer to see that it runs")
    parser.add_argument("--dtype", default="auto", help="here")
    parser.add_argument("--dtypes", nargs="+", default=sorted({fastest_dtype("cpu"), "float32"}), help="of generate")
    arguments, slow = parser.parse_args(), False
    for name in arguments.models:
        (way, own), *others = measure(MODELS[name], arguments).items()
        print(f"{name}\n{own:8.1f} tokens/s  {way}")
        for other, rate in others:
            print(f"{rate:8.1f} tokens/s  {other}; {own / rate:.2f} times as fast here", flush=True)
        slow |= own < MIN_RATIO * max(rate for _, rate in others)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
