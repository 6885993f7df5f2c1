"""The model's output, ``[start][Sxx]text[end]`` over and over, read as it comes.

A mark is a time (``[7.56]``, ``[1:23]``, ``[01:02:03.5]``) or a speaker (``[S01]``); any other bracket is what was
said, a bare number too. A time right behind text ends a segment, any other one starts one, so marks that are missing,
come twice or in another order cost no text.
"""

from __future__ import annotations

import re
from typing import Self

from attrs import evolve, frozen

from asr_core.longform import join_texts
from asr_core.types import End, Mark, Piece, Speaker, Start

_TIME = r"(?=[\d:]*[:.])(?P<bigger>(?:\d{1,2}:){0,2})(?P<seconds>\d{1,5})(?:\.(?P<fraction>\d{1,3}))?"
_MARK = re.compile(rf"\[(?:(?P<speaker>S\d{{1,4}})|{_TIME})\]", re.ASCII)
_UNDECIDED = re.compile(r"\[[S\d:.]{0,15}\Z", re.ASCII)
"""What may yet become a mark, of which none has more than 17 characters: as in ``[01:02:00003.000]``."""


@frozen
class Output:
    """How far the output is read.

    ``last`` is the last visible character, and ``seam`` whether a mark stands behind it. ``space`` is white space that
    is text only if text follows, ``bracket`` the beginning of what may be a mark.
    """

    last: str = ""
    seam: bool = False
    space: str = ""
    bracket: str = ""

    def read(self, text: str, *, final: bool = False) -> tuple[Piece, Self]:
        """What ``text`` adds, in order, and how far the output is read then; ``final`` when nothing will follow."""
        text = self.bracket + text
        undecided = None if final else _UNDECIDED.search(text)
        end = undecided.start() if undecided else len(text)
        output, piece, begin = evolve(self, bracket=text[end:]), [], 0
        for match in _MARK.finditer(text, 0, end):
            before, output = output._say(text[begin : match.start()])
            mark, output = output._mark(match)
            piece += [*before, mark]
            begin = match.end()
        rest, output = output._say(text[begin:end])
        return (*piece, *rest), output

    def _say(self, text: str) -> tuple[Piece, Self]:
        """White space waits for what follows it; at a seam it gives way to what parts two texts there."""
        text = self.space + text
        visible = text.rstrip()
        if not visible:
            return (), evolve(self, space=text)
        if self.seam:
            visible = visible.lstrip()
            visible = _space_between(self.last, visible[0]) + visible
        return (visible,), evolve(self, last=visible[-1], seam=False, space=text[len(text.rstrip()) :])

    def _mark(self, match: re.Match[str]) -> tuple[Mark, Self]:
        marked = evolve(self, seam=True, space="")
        if match["speaker"]:
            return Speaker(match["speaker"]), marked
        time = End if self.last and not self.seam else Start
        return time(_milliseconds(match)), marked


def _milliseconds(match: re.Match[str]) -> int:
    """From the digits themselves: a float makes 8.120000000000001 of 8.12."""
    seconds = 0
    for part in match["bigger"].split(":")[:-1]:
        seconds = 60 * (seconds + int(part))
    return 1000 * (seconds + int(match["seconds"])) + int((match["fraction"] or "").ljust(3, "0"))


def _space_between(last: str, first: str) -> str:
    """One space or nothing, as the core joins texts; nothing at the clip's beginning."""
    return join_texts((last, first))[len(last) : -1]
