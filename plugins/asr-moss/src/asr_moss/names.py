"""The model by name, and from what a person types to a checkpoint. Importing this must stay cheap."""

from __future__ import annotations

from asr_core.checkpoints import Pretrained, resolve
from asr_core.errors import CheckpointError
from asr_core.types import Checkpoint, ModelCard

MODEL_TYPE = "moss_transcribe_diarize"
"""Of config.json."""

CARD = ModelCard(
    name="moss-transcribe-diarize",
    checkpoints=("hf-audio/MOSS-Transcribe-Diarize-HF",),
    summary="0.9 B parameters; speakers and segment times, 90 minutes in one pass",
    license="Apache-2.0",
    config=Pretrained(
        {
            "model_type": MODEL_TYPE,
            "audio_chunk_size": 480_000,
            "audio_merge_size": 4,
            "audio_config": {"max_source_positions": 1500, "num_mel_bins": 80},
            "text_config": {"max_position_embeddings": 131_072},
        }
    ),
)


def find(ref: str) -> Checkpoint | None:
    """The checkpoint ``ref`` means, or None when it is nothing of this model's.

    Raises:
        CheckpointError: it is, but damaged, out of reach, or in the layout of the model's own code.
    """
    checkpoint = resolve(ref, (CARD,), MODEL_TYPE, lambda _: CARD.name, "moss-transcribe-diarize")
    # The property of transformers' configuration that the model's own code writes as a field.
    if checkpoint and "adaptor_input_dim" in checkpoint.config.config:
        raise CheckpointError(
            f"{ref} is in the layout of the model's own code, which is not run: take {CARD.checkpoints[0]}, or convert "
            "it with the script that comes with transformers"
        )
    return checkpoint
