"""model.bin: real files, files written here from the description of the format, and hostile ones."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import WhisperConfig, WhisperForConditionalGeneration

from asr_core.errors import CheckpointError
from asr_whisper.checkpoints import resolve
from asr_whisper.ctranslate2 import Index
from asr_whisper.names import DIMENSIONS
from asr_whisper.source import Source
from asr_whisper.weights import open_module

Array = tuple[tuple[int, ...], int, bytes]  # dimensions, type code, bytes
State = dict[str, torch.Tensor]

CODES = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.float16: 4, torch.bfloat16: 5}


# A writer that knows the format but not the reader


def array(tensor: torch.Tensor) -> Array:
    return tuple(tensor.shape), CODES[tensor.dtype], tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def linear(state: State, *names: str) -> Iterator[tuple[str, torch.Tensor]]:
    yield "weight", torch.cat([state[f"{name}.weight"] for name in names])
    biases = [state.get(f"{name}.bias", torch.zeros(len(state[f"{name}.weight"]))) for name in names]
    yield "bias", torch.cat(biases)


def norm(state: State, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    yield "gamma", state[f"{name}.weight"]
    yield "beta", state[f"{name}.bias"]


def fused(model: WhisperForConditionalGeneration) -> dict[str, torch.Tensor]:
    state = {name.removeprefix("model."): tensor for name, tensor in model.state_dict().items()}
    out = {"decoder/embeddings/weight": state["decoder.embed_tokens.weight"]}
    for convolution in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            out[f"encoder/{convolution}/{kind}"] = state[f"encoder.{convolution}.{kind}"]
    for side, layers in (("encoder", model.config.encoder_layers), ("decoder", model.config.decoder_layers)):
        out[f"{side}/position_encodings/encodings"] = state[f"{side}.embed_positions.weight"]
        groups = {"layer_norm": norm(state, f"{side}.layer_norm")}
        for layer in range(layers):
            target, source = f"layer_{layer}", f"{side}.layers.{layer}"
            attention = f"{source}.self_attn"
            groups |= {
                f"{target}/self_attention/layer_norm": norm(state, f"{attention}_layer_norm"),
                f"{target}/self_attention/linear_0": linear(state, *(f"{attention}.{x}_proj" for x in "qkv")),
                f"{target}/self_attention/linear_1": linear(state, f"{attention}.out_proj"),
                f"{target}/ffn/layer_norm": norm(state, f"{source}.final_layer_norm"),
                f"{target}/ffn/linear_0": linear(state, f"{source}.fc1"),
                f"{target}/ffn/linear_1": linear(state, f"{source}.fc2"),
            }
            if side == "decoder":
                cross = f"{source}.encoder_attn"
                groups |= {
                    f"{target}/attention/layer_norm": norm(state, f"{cross}_layer_norm"),
                    f"{target}/attention/linear_0": linear(state, f"{cross}.q_proj"),
                    f"{target}/attention/linear_1": linear(state, f"{cross}.k_proj", f"{cross}.v_proj"),
                    f"{target}/attention/linear_2": linear(state, f"{cross}.out_proj"),
                }
        out |= {f"{side}/{group}/{kind}": tensor for group, pairs in groups.items() for kind, tensor in pairs}
    return out


def quantised(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    if dtype not in (torch.int8, torch.int16) or not name.endswith("weight"):
        yield name, tensor.to(torch.float32 if dtype in (torch.int8, torch.int16) else dtype)
        return
    if dtype == torch.int8:
        scale = 127 / tensor.abs().flatten(1).amax(1)
        yield name, (tensor * scale.reshape(-1, *[1] * (tensor.dim() - 1))).round().to(dtype)
    else:
        scale = 1024 / tensor.abs().amax()
        yield name, (tensor * scale).round().to(dtype)
    yield f"{name}_scale", scale


def arrays(model: WhisperForConditionalGeneration, dtype: torch.dtype) -> dict[str, Array]:
    config = model.config
    out = {
        "encoder/num_heads": ((), 2, struct.pack("<h", config.encoder_attention_heads)),
        "decoder/num_heads": ((), 2, struct.pack("<h", config.decoder_attention_heads)),
        "decoder/activation": ((), 1, b"\3"),
        "decoder/pre_norm": ((), 1, b"\1"),
        "decoder/scale_embeddings": ((), 1, b"\0"),
    }
    for name, tensor in fused(model).items():
        out |= {key: array(value) for key, value in quantised(name, tensor, dtype)}
    return out


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<H", len(data) + 1) + data + b"\0"


def variable(name: str | bytes, content: Array) -> bytes:
    shape, code, data = content
    return text(name) + struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, code, len(data)) + data


def header(count: int, version: int = 6, spec: str = "WhisperSpec") -> bytes:
    return struct.pack("<I", version) + text(spec) + struct.pack("<II", 3, count)


ALIASES = {"decoder/projection/weight": "decoder/embeddings/weight"}


def model_bin(content: dict[str, Array], aliases: dict[str, str] = ALIASES, version: int = 6) -> bytes:
    body = b"".join(variable(name, value) for name, value in content.items())
    tail = struct.pack("<I", len(aliases)) + b"".join(text(alias) + text(name) for alias, name in aliases.items())
    return header(len(content), version) + body + tail


@cache
def small() -> WhisperForConditionalGeneration:
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=60, num_mel_bins=5, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=32, max_source_positions=10,
        max_target_positions=12, pad_token_id=0, bos_token_id=0, eos_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def write(directory: Path, data: bytes) -> Path:
    (directory / "model.bin").write_bytes(data)
    return directory


def load(directory: Path, dtype: str = "float32") -> WhisperForConditionalGeneration:
    checkpoint = resolve(str(directory))
    assert checkpoint is not None
    return open_module(checkpoint, dtype, "cpu")


# Real files


@pytest.mark.parametrize("name", ["whisper-base", "whisper-tiny.en"])
def test_openais_weights_load_completely(name: str) -> None:
    checkpoint = resolve(name)
    assert checkpoint is not None
    assert checkpoint.config.dims == DIMENSIONS[name]
    module = open_module(checkpoint, "float16", "cpu")  # raises for a missing or superfluous weight
    assert not [parameter for parameter in module.parameters() if parameter.is_meta or parameter.requires_grad]
    assert module.proj_out.weight.data_ptr() == module.model.decoder.embed_tokens.weight.data_ptr()
    assert not module.training
    # Positions are the one table whose content is known: sines, then cosines, from 0.
    positions = module.model.encoder.embed_positions.weight
    width = checkpoint.config.dims.audio_width
    rates = torch.exp(-torch.arange(width // 2) * np.log(10_000) / (width // 2 - 1))
    angles = torch.arange(1500)[:, None] * rates
    assert torch.allclose(positions.float(), torch.cat([angles.sin(), angles.cos()], 1), atol=2e-3)


def test_a_split_file_reads_like_a_whole_one(tmp_path: Path) -> None:
    data = model_bin(arrays(small(), torch.float32))
    for cut in (1, 17, 40, len(data) // 2, len(data) - 1):
        parts = tmp_path / "a", tmp_path / "b", tmp_path / "c"
        for part, content in zip(parts, (data[:cut], b"", data[cut:]), strict=True):
            part.write_bytes(content)
        source = Source(parts)
        assert source.size() == len(data)
        with source.open() as stream:
            assert stream.read() == data
            assert stream.seek(-3, 2) == len(data) - 3
            assert stream.read(9) == data[-3:]
        assert Index.read(source).dimensions().vocabulary == 60


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_floating_point_round_trip(tmp_path: Path, dtype: torch.dtype, version: int) -> None:
    loaded = load(write(tmp_path, model_bin(arrays(small(), dtype), version=version))).state_dict()
    expected = small().state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], tensor.to(dtype).float()) for name, tensor in expected.items())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_integers_are_off_by_at_most_half_a_step(tmp_path: Path, dtype: torch.dtype) -> None:
    loaded = load(write(tmp_path, model_bin(arrays(small(), dtype)))).state_dict()
    for name, tensor in small().state_dict().items():
        largest = tensor.abs().flatten(1).amax(1) if dtype == torch.int8 and tensor.dim() > 1 else tensor.abs().amax()
        step = largest / (127 if dtype == torch.int8 else 1024)
        if not name.endswith("weight") or "norm" in name or "embed_positions" in name:
            step = torch.zeros(())
        error = (loaded[name] - tensor).abs()
        # The int16 scale is over a fused weight, so over at least as large a value as this part's.
        allowed = step.max() * 2 if dtype == torch.int16 else step.reshape(-1, *[1] * (tensor.dim() - 1)) / 2
        assert (error <= allowed * 1.001 + 1e-7).all(), name


def test_the_module_computes_the_same(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, model_bin(arrays(small(), torch.float32))))
    inputs = {"input_features": torch.randn(2, 5, 20), "decoder_input_ids": torch.tensor([[3, 9, 27], [1, 2, 3]])}
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, small()(**inputs).logits)


@pytest.mark.parametrize(("part", "other"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_one_part_alone(tmp_path: Path, part: str, other: str) -> None:
    checkpoint = resolve(str(write(tmp_path, model_bin(arrays(small(), torch.float32)))))
    assert checkpoint is not None
    module = open_module(checkpoint, "float32", "cpu", frozenset({part}))
    assert getattr(module.model, other) is None
    expected = getattr(small().model, part).state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in getattr(module.model, part).state_dict().items())


# Files that are wrong


def without(name: str) -> Callable[[dict[str, Array]], None]:
    return lambda content: content.__delitem__(name)


def adding(name: str, value: Array) -> Callable[[dict[str, Array]], None]:
    return lambda content: content.__setitem__(name, value)


FLOATS = struct.pack("<3f", 1, 2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("decoder/layer_norm/beta"), "lacks decoder/layer_norm/beta"),
        (without("encoder/conv1/weight"), "no encoder/conv1/weight of 3 dimensions"),
        (without("decoder/layer_0/self_attention/linear_0/weight_scale"), "without a scale"),
        (adding("decoder/layer_0/adapter/weight", ((3,), 0, FLOATS)), "no Whisper has: decoder/layer_0/adapter"),
        (
            adding("encoder/layer_norm/gamma", ((3,), 0, FLOATS)),
            r"encoder/layer_norm/gamma is \(3,\), expected \(16,\)",
        ),
        (adding("decoder/layer_0/ffn/linear_1/weight_scale", ((3,), 0, FLOATS)), "without a scale that fits"),
        (adding("encoder/num_heads", ((), 2, b"\3\0")), "no multiple of the number of heads"),
        (adding("encoder/num_heads", ((), 2, b"\xff\xff")), "audio_heads is -1"),
        (adding("encoder/num_heads", ((3,), 0, FLOATS)), "num_heads is not an integer"),
        (adding("decoder/activation", ((), 1, b"\0")), "decoder/activation is 0, a Whisper has 3"),
        (adding("encoder/layer_7/ffn/linear_0/bias", ((3,), 0, FLOATS)), "lacks encoder/layer_2"),
    ],
)
def test_wrong_content_is_named(tmp_path: Path, change: Callable[[dict[str, Array]], None], message: str) -> None:
    content = arrays(small(), torch.int8)
    change(content)
    with pytest.raises(CheckpointError, match=message):
        load(write(tmp_path, model_bin(content)))


HUGE = 2**32 - 1
ONE: Array = ((3,), 0, FLOATS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(1, version=3), "binary version 3"),
        (header(1, version=7), "binary version 7"),
        (header(0, spec="TransformerSpec"), "holds a TransformerSpec"),
        (header(HUGE), f"{HUGE} variables announced"),
        (header(2) + variable("a", ONE) + variable("a", ONE), "a appears twice"),
        (header(1) + text("a") + struct.pack("<B4IBI", 4, HUGE, HUGE, HUGE, HUGE, 0, 0), "but has 0 bytes"),
        # 2^16 * 2^16 is 0 in 32 bits
        (header(1) + text("a") + struct.pack("<B2IBI", 2, 2**16, 2**16, 1, 0), "but has 0 bytes"),
        (header(1) + text("a") + struct.pack("<BIBI", 1, HUGE, 1, HUGE), f"{HUGE} more bytes announced"),
        (header(1) + text("a") + struct.pack("<B", 255), "255 dimensions"),
        (header(1) + variable("a", ((3,), 9, FLOATS)), "unknown data type 9"),
        (header(1) + variable(b"\xff\xfe", ONE), "zero-terminated ASCII"),
        (header(1) + struct.pack("<H", 0), "a name of 0 bytes"),
        (header(1) + struct.pack("<H", 65535) + b"a" * 65535, "a name of 65535 bytes"),
        (header(1) + struct.pack("<H", 2) + b"ab", "zero-terminated"),
        (header(0) + struct.pack("<I", HUGE), f"{HUGE} aliases announced"),
        (header(0) + struct.pack("<I", 2) + text("a") + text("b") + text("b") + text("a"), "alias a of b"),
        (header(1) + variable("a", ONE) + struct.pack("<I", 1) + text("a") + text("a"), "alias a of a"),
        (header(0) + struct.pack("<I", 0) + b"!", "1 bytes are left over"),
        (b"", "damaged at byte 0"),
    ],
)
def test_hostile_headers_are_refused_before_anything_is_allocated(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        Index.read(Source((path,)))


@cache
def whole() -> bytes:
    return model_bin(arrays(small(), torch.int8))


@given(
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    kept=st.one_of(st.just(1.0), st.floats(0, 1)),
    near=st.booleans(),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_loads_or_is_a_checkpoint_error(
    tmp_path: Path, changes: list[tuple[float, int]], kept: float, near: bool
) -> None:
    data = bytearray(whole())
    for place, value in changes:
        # Half of the time in the first headers, where a byte is likely to mean something.
        data[int(place * (200 if near else len(data)))] = value
    path = tmp_path / "model.bin"
    path.write_bytes(data[: int(kept * len(data))])
    try:
        index = Index.read(Source((path,)))
        assert sum(variable.size for variable in {*index.variables.values()}) < len(data)
        index.dimensions()
        load(tmp_path)
    except CheckpointError:
        pass


@given(data=st.binary(max_size=300))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_after_a_good_start(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(header(1)[:-4] + data)
    with pytest.raises(CheckpointError):
        Index.read(Source((path,))).dimensions()


def test_another_hash_is_refused_before_the_weights_are_used(tmp_path: Path) -> None:
    checkpoint = resolve(str(write(tmp_path, model_bin(arrays(small(), torch.float32)))))
    assert checkpoint is not None
    source = Source(checkpoint.config.weights.parts, "00ff" * 16, "some-package 1.0")
    changed = evolve(checkpoint, config=evolve(checkpoint.config, weights=source))
    with pytest.raises(CheckpointError, match=r"of some-package 1\.0 .* expected sha256 00ff.*, got [0-9a-f]{64}"):
        open_module(changed, "float32", "cpu")
