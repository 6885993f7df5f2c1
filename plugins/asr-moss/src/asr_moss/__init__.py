"""MOSS-Transcribe-Diarize for asr-core."""
