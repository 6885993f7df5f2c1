"""Qwen3-ASR for asr-core."""
