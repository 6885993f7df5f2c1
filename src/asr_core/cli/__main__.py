"""``python -m asr_core.cli``."""

from asr_core.cli import main

main()
