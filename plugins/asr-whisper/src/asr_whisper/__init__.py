"""Whisper for asr-core."""
