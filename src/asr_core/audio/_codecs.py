"""The decoders an upload may reach, by FFmpeg's names; those of pictures, video and text are not among them."""

from __future__ import annotations

_COMPRESSED = (
    "aac aac_fixed aac_latm alac ac3 ac3_fixed eac3 amrnb amrwb libopencore_amrnb libopencore_amrwb flac gsm gsm_ms "
    "libgsm libgsm_ms mp1 mp1float mp2 mp2float mp3 mp3float libopus opus libspeex speex libvorbis vorbis"
)
_PCM = (
    "pcm_alaw pcm_mulaw pcm_u8 pcm_s8 pcm_s16le pcm_s16be pcm_s24le pcm_s24be pcm_s32le pcm_s32be pcm_s64le pcm_s64be "
    "pcm_f32le pcm_f32be pcm_f64le pcm_f64be"
)
_ADPCM = "adpcm_ima_wav adpcm_ima_qt adpcm_ms adpcm_g722 adpcm_g726 adpcm_g726le g722 g726 g726le"

DECODERS = frozenset(f"{_COMPRESSED} {_PCM} {_ADPCM}".split())
"""Names as :attr:`av.Codec.name` gives them, of the builds of FFmpeg people have."""
