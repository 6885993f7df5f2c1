"""Log lines as JSON objects, one a line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

FACTS = "facts"
"""Attribute of a record that is more than a sentence: a mapping that becomes part of the object."""


class JsonFormatter(logging.Formatter):
    """``time`` (ISO 8601, UTC), ``level``, ``logger`` and a ``message``, or facts in its place."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, in ASCII, so that nothing in it can end the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        line |= getattr(record, FACTS, None) or {"message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def use_json() -> None:
    """Make JSON of all that is logged in this process."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
