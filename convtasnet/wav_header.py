"""Is a wav file as long as its header says? (libsndfile corrects the length silently.)"""

from __future__ import annotations

import struct

# Programs that write wav into a pipe can't know its length and put a huge one into the header
# (sox 0x7ffff000 and above, ffmpeg 0xffffffff).
_UNKNOWN_RIFF_LENGTH = 0x7FFF_0000


def missing_bytes(path: str, size: int) -> int:
    """Bytes that a RIFF wav's data chunk promises beyond the file's end.

    Args:
        path: the file, wav or not.
        size: its bytes.

    Returns:
        0 for whole files, those written into a pipe, and other formats.
    """
    with open(path, "rb") as file:
        head = file.read(12)
        if len(head) < 12 or head[:4] not in (b"RIFF", b"RIFX") or head[8:] != b"WAVE":
            return 0
        order = "<I" if head[:4] == b"RIFF" else ">I"
        position = 12
        while len(chunk := file.read(8)) == 8:
            length = struct.unpack(order, chunk[4:])[0]
            position += 8
            if chunk[:4] == b"data":
                return 0 if length >= _UNKNOWN_RIFF_LENGTH else max(0, position + length - size)
            position += length + length % 2
            file.seek(position)
    return 0
