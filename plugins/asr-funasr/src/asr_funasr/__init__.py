"""Fun-ASR-Nano as a plugin of asr-core."""
