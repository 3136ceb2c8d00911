"""Seeded mutations of valid files: of bytes anywhere, and of the structure of each format.

A mutation of the structure keeps what surrounds it valid (lengths, checksums, compression), so that the damage reaches
the code behind the first check.
"""

import ast
import bz2
import copy
import gzip
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

Mutation = Callable[[random.Random, bytes], bytes]

NUMBERS = (0, 1, 2, 3, 4, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
WORDS = (
    *(
        b"",
        b"\0",
        b"nan",
        b"inf",
        b"-1",
        b"1e999",
        b"0x10",
        b"1_0",
        b"--1",
        b"\xff\xfe",
        b'"',
        b"'",
        b"\n",
        b"\r",
        b",,",
    ),
    *(
        b";",
        b"\t",
        "ÿ".encode(),
        b"\xed\xa0\x80",
        b"=1+1",
        b"\x1b[31m",
        b"9" * 400,
        b"a" * 300,
        b"../../x",
        b"/dev/null",
    ),
)
JSON_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        10**6,
        2**31,
        2**63,
        10**30,
        -(10**12),
        0.5,
        1e308,
        -0.0,
        float("nan"),
        float("inf"),
    ),
    *("", "x", "\0", "a" * 300, "1", "-1", "\x1b[2J", "é\u202e", [], {}, [[]], [None], [1, 2], {"": 0}, ["a", 1]),
)
DEEP = 20_000  # more brackets than any stack of calls can hold


# --- Bytes anywhere ---


def damaged(draw: random.Random, content: bytes) -> bytes:
    """A few random changes of bytes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        _change(draw, data)
    return bytes(data)


def _change(draw: random.Random, data: bytearray) -> None:
    start = draw.randrange(len(data) + 1)
    length = min(draw.choice((1, 2, 4, 8, 30, 200)), len(data) - start)
    kind = draw.randrange(9)
    if kind <= 1 and start < len(data):
        data[start] ^= 1 << draw.randrange(8)
    elif kind == 2 and start < len(data):
        data[start] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    elif kind == 3:
        number = draw.choice(NUMBERS)
        width = draw.choice((2, 4, 8))
        order = draw.choice(("little", "big"))
        data[start : start + width] = (number % 2 ** (8 * width)).to_bytes(width, order)  # type: ignore[arg-type]
    elif kind == 4:
        del data[start : start + length]
    elif kind == 5:
        data[start:start] = data[start : start + length] * draw.choice((1, 1, 2, 50))
    elif kind == 6:
        other = draw.randrange(len(data) + 1)
        data[start : start + length] = data[other : other + length]
    elif kind == 7:
        data[start : start + length] = draw.choice(WORDS)
    else:
        del data[start:]


def truncated(draw: random.Random, content: bytes) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def one_of(*mutations: Mutation) -> Mutation:
    """One of several mutations, all equally often."""
    return lambda draw, content: draw.choice(mutations)(draw, content)


# --- JSON ---


def json_changed(draw: random.Random, content: bytes) -> bytes:
    """A JSON text in which one value, name or bracket is another."""
    if draw.random() < 0.03:
        name = json.dumps(draw.choice(list(json.loads(content)) or ["x"]))
        opening, closing = draw.choice((("[", "]"), ('{"a":', "}")))
        return f"{{{name}: {opening * DEEP}1{closing * DEEP}}}".encode()
    return json.dumps(value_changed(draw, json.loads(content))).encode()


def value_changed(draw: random.Random, value: Any) -> Any:
    """A JSON value with one change, at a random place inside."""
    root = [copy.deepcopy(value)]
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], dict | list) and holder[key] and draw.random() < 0.8:
        holder = holder[key]
        key = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
    kind = draw.randrange(6)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[draw.choice(("", "x", "step", "\0", "self", "name"))] = holder.pop(key)
    elif kind == 2 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = draw.choice((-holder[key], holder[key] * 10**9, holder[key] + 0.5, str(holder[key])))
    elif kind == 3:
        holder[key] = [holder[key]] * draw.choice((1, 2, 40))
    else:
        holder[key] = draw.choice(JSON_VALUES)
    return root[0]


def json_lines_changed(draw: random.Random, content: bytes) -> bytes:
    lines = content.splitlines()
    for place in draw.sample(range(len(lines)), draw.choice((1, 1, 3))):
        lines[place] = draw.choice((json_changed, damaged))(draw, lines[place])
    if draw.random() < 0.1:
        draw.shuffle(lines)
    return b"\n".join(lines) + b"\n"


# --- Compression and archives ---


def gzipped(inner: Mutation) -> Mutation:
    """Mutate the content of a gzip file."""
    return lambda draw, content: gzip.compress(inner(draw, gzip.decompress(content)), 1, mtime=0)


def bzipped(inner: Mutation) -> Mutation:
    return lambda draw, content: bz2.compress(inner(draw, bz2.decompress(content)), 1)


def zipped(inner: Mutation) -> Mutation:
    """Mutate a member of a zip archive, or its list of members, and write a valid archive."""

    def mutated(draw: random.Random, content: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
        place = draw.randrange(len(members))
        name, data = members[place]
        kind = draw.randrange(12)
        if kind == 0:
            del members[place]
        elif kind == 1:
            members.append((name, draw.choice(members)[1]))
        elif kind == 2:
            members[place] = (draw.choice(("x", "x.npy", "../x.npy", "y.npy", "\u202e.npy", "/x.npy", "x.npy/")), data)
        elif kind == 3:
            members[place] = (name, draw.choice(members)[1])
        else:
            members[place] = (name, inner(draw, data))
        out = io.BytesIO()
        # torch's archives must not be compressed.
        method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with zipfile.ZipFile(out, "w", method) as archive:
            for member, data in members:
                if member not in archive.namelist():
                    archive.writestr(zipfile.ZipInfo(member), data, method)
        return out.getvalue()

    return mutated


def zip_directory_changed(draw: random.Random, content: bytes) -> bytes:
    """Change a field of the records that describe the members of a zip archive."""
    data = bytearray(content)
    signatures = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06")
    places = [i for i in range(len(data) - 4) if bytes(data[i : i + 4]) in signatures]
    if not places:
        return damaged(draw, content)
    start = draw.choice(places) + draw.randrange(4, 42, 2)
    width = draw.choice((2, 4))
    data[start : start + width] = (draw.choice(NUMBERS) % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(data)


def tarred(draw: random.Random, content: bytes) -> bytes:
    """Change a field of a header of a tar archive, and correct the header's checksum."""
    data = bytearray(content)
    start = draw.choice(range(0, max(512, len(data) - 1024), 512))
    fields = ((0, 100), (100, 8), (108, 8), (124, 12), (136, 12), (156, 1), (157, 100), (257, 8), (345, 155))
    offset, length = draw.choice(fields)
    octal = oct(draw.choice(NUMBERS))[2:].encode()
    words = (
        octal,
        octal,
        b"\x80" + b"\xff" * 7,
        b"../../x",
        b"/x",
        b"a\0b",
        b"\\x",
        *(bytes([k]) for k in b"0123456567gxLKSDV"),
    )
    data[start + offset : start + offset + length] = draw.choice(words)[:length].ljust(length, b"\0")
    header = data[start : start + 512]
    header[148:156] = b" " * 8
    data[start + 148 : start + 156] = f"{sum(header):06o}\0 ".encode()
    return bytes(data)


# --- Arrays ---


def npy_changed(draw: random.Random, content: bytes) -> bytes:
    """Change a field of the header of an .npy file, whose length stays right."""
    length = int.from_bytes(content[8:10], "little")
    header, values = content[10 : 10 + length].decode("latin1"), content[10 + length :]
    kind = draw.randrange(8)
    try:
        fields: dict[str, Any] = ast.literal_eval(header)
    except (ValueError, SyntaxError):
        return damaged(draw, content)
    if kind <= 2:
        shape = list(fields["shape"])
        place = draw.randrange(len(shape) + 1)
        shape[place : place + draw.randrange(2)] = [draw.choice((*NUMBERS, -1, 10**12, 10**30, True, 1.5, None, "4"))]
        fields["shape"] = draw.choice((tuple(shape), shape, tuple(shape[::-1]), (), shape[0]))
    elif kind == 3:
        fields["descr"] = draw.choice(
            (
                *("|O", "<f2", "<f16", ">f8", "|S0", "|S2147483647", "<U1", "<c8", "|b1", "<M8[D]", "|V3", "", "x"),
                *([("a", "<f4")], [["a", "<f4", (2**20,)]], [("a", "|O")], ("<f4", (3,)), "<i8,<i8", "|u1", None, 4),
            )
        )
    elif kind == 4:
        fields["fortran_order"] = draw.choice((True, None, 1, "no"))
    elif kind == 5:
        fields.pop(draw.choice(list(fields)))
    text = repr(fields)
    if kind == 6:
        text = damaged(draw, header.encode("latin1")).decode("latin1")
    elif kind == 7:
        text = draw.choice(
            ("(" * 3000, "-" * 3000 + "1", "{'a':" * 900, "'''", "1L", "{}", "[", "\\", "\0", "9" * 5000)
        )
    padded = text.encode("latin1", "replace")[:60000] + b"\n"
    version = draw.choice((b"\x01\x00", b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    size = len(padded).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return content[:6] + version + size + padded + values


# --- Tables ---


def cells_changed(draw: random.Random, content: bytes) -> bytes:
    """Change cells, rows and columns of a CSV file."""
    delimiter = max((b",", b";", b"\t"), key=content.count)
    rows = [line.split(delimiter) for line in content.splitlines()]
    for _ in range(draw.choice((1, 1, 2, 5))):
        row = draw.choice(rows)
        kind = draw.randrange(7)
        if kind <= 2 and row:
            row[draw.randrange(len(row))] = draw.choice(
                (*WORDS, str(draw.choice(NUMBERS)).encode(), draw.choice(rows[0] or [b""]))
            )
        elif kind == 3 and row:
            del row[draw.randrange(len(row))]
        elif kind == 4:
            row.insert(draw.randrange(len(row) + 1), draw.choice(WORDS))
        elif kind == 5:
            rows.insert(draw.randrange(len(rows) + 1), list(draw.choice(rows)))
        else:
            for each in rows:
                each.append(draw.choice(WORDS))
    return draw.choice((b"\n", b"\n", b"\r\n", b"\r", b"\n\n")).join(delimiter.join(row) for row in rows)


# --- Pictures ---


def png_changed(draw: random.Random, content: bytes) -> bytes:
    """Change a chunk of a PNG, and correct its length and checksum."""
    chunks, place = [], 8
    while place + 12 <= len(content):
        length = int.from_bytes(content[place : place + 4], "big")
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    index = draw.randrange(len(chunks))
    name, data = chunks[index]
    kind = draw.randrange(6)
    if kind == 0:
        chunks.insert(draw.randrange(len(chunks) + 1), draw.choice(chunks))
    elif kind == 1 and len(chunks) > 1:
        del chunks[index]
    elif kind == 2:
        names = (
            b"PLTE",
            b"tRNS",
            b"iCCP",
            b"eXIf",
            b"zTXt",
            b"acTL",
            b"fcTL",
            b"fdAT",
            b"IHDR",
            b"IDAT",
            b"gAMA",
            b"iTXt",
        )
        chunks.insert(
            draw.randrange(len(chunks) + 1), (draw.choice(names), draw.randbytes(draw.choice((0, 1, 13, 26, 60))))
        )
    elif kind == 3 and name == b"IDAT":
        chunks[index] = (name, zlib.compress(draw.randbytes(draw.choice((0, 10, 500))) * draw.choice((1, 300)), 1))
    else:
        chunks[index] = (name, damaged(draw, data))
    out = content[:8]
    for name, data in chunks:
        out += len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")
    return out


def tiff_changed(draw: random.Random, content: bytes) -> bytes:
    """Change an entry of the directory of a little-endian TIFF."""
    data = bytearray(content)
    start = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[start : start + 2], "little")
    if not 0 < count < 100:
        return damaged(draw, content)
    entry = start + 2 + 12 * draw.randrange(count)
    offset, width = draw.choice(((0, 2), (2, 2), (4, 4), (8, 4), (8, 2)))
    number = draw.choice((*NUMBERS, *range(254, 340), *range(14)))
    data[entry + offset : entry + offset + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(data)


def jpeg_changed(draw: random.Random, content: bytes) -> bytes:
    """Change a segment of a JPEG before its pixels, or add one, and correct its length."""
    segments, place = [], 2
    while place + 4 <= len(content) and content[place] == 0xFF and content[place + 1] != 0xDA:
        length = int.from_bytes(content[place + 2 : place + 4], "big")
        segments.append((content[place + 1], content[place + 4 : place + 2 + length]))
        place += 2 + length
    index = draw.randrange(len(segments))
    marker, data = segments[index]
    kind = draw.randrange(5)
    if kind == 0:
        del segments[index]
    elif kind == 1:
        segments.insert(draw.randrange(len(segments) + 1), draw.choice(segments))
    elif kind == 2:
        words = (
            b"Exif\0\0II*\0\x08\0\0\0" + draw.randbytes(30),
            b"ICC_PROFILE\0",
            b"Adobe\0",
            b"MPF\0" + draw.randbytes(20),
        )
        segments.insert(draw.randrange(len(segments) + 1), (draw.choice((0xE0, 0xE1, 0xE2, 0xEE)), draw.choice(words)))
    elif kind == 3:
        segments[index] = (draw.choice((0xC0, 0xC1, 0xC2, 0xC4, 0xDB, 0xDD, 0xFE, marker)), data)
    else:
        segments[index] = (marker, damaged(draw, data))
    out = content[:2]
    for marker, data in segments:
        out += bytes([0xFF, marker]) + min(len(data) + 2, 65535).to_bytes(2, "big") + data
    return out + content[place:]


# --- Weights, graphs and MATLAB files ---


def safetensors_changed(draw: random.Random, content: bytes) -> bytes:
    """Change the JSON header of a safetensors file, also the JSON texts in its metadata."""
    length = int.from_bytes(content[:8], "little")
    header, values = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.get("__metadata__", {})
    inner = [name for name, text in metadata.items() if text[:1] in "[{"]
    if inner and draw.random() < 0.7:
        name = draw.choice(inner)
        metadata[name] = json_changed(draw, metadata[name].encode()).decode()
        if draw.random() < 0.9:
            metadata.pop("sha256", None)  # early versions wrote no checksum
    else:
        header = value_changed(draw, header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def mat_changed(draw: random.Random, content: bytes) -> bytes:
    """Change the inside of a compressed variable of a MATLAB file, and compress it again."""
    out, place = content[:128], 128
    elements = []
    while place + 8 <= len(content):
        kind, length = struct.unpack("<II", content[place : place + 8])
        elements.append((kind, content[place + 8 : place + 8 + length]))
        place += 8 + length
    index = draw.randrange(len(elements))
    kind, data = elements[index]
    if kind == 15:
        inner = zlib.decompress(data)
        head = inner[:100]  # the dimensions and types; the rest are the values
        elements[index] = (kind, zlib.compress(damaged(draw, head) + inner[100:], 1))
    else:
        elements[index] = (kind, damaged(draw, data[:100]) + data[100:])
    for kind, data in elements:
        out += struct.pack("<II", kind, len(data)) + data
    return out


def protobuf_changed(draw: random.Random, content: bytes) -> bytes:
    """Change one field, at any depth, of a protobuf message, and correct the lengths around it."""
    fields = _protobuf_fields(content)
    if not fields:
        return damaged(draw, content)
    index = draw.randrange(len(fields))
    number, kind, value = fields[index]
    if isinstance(value, int):
        fields[index] = (number, kind, draw.choice((*NUMBERS, 2**64 - 1, value + 1, value ^ 1)))
    elif kind == 2 and len(value) > 1 and draw.random() < 0.85:
        fields[index] = (number, kind, protobuf_changed(draw, value))
    elif draw.random() < 0.5:
        fields[index] = (number, kind, damaged(draw, value) if kind == 2 else draw.randbytes(len(value)))
    elif draw.random() < 0.5:
        del fields[index]
    else:
        fields.insert(draw.randrange(len(fields) + 1), draw.choice(fields))
    out = b""
    for number, kind, value in fields:
        out += _varint(number << 3 | kind)
        if isinstance(value, int):
            out += _varint(value)
        else:
            out += (_varint(len(value)) if kind == 2 else b"") + value
    return out


def _protobuf_fields(content: bytes) -> list[tuple[int, int, int | bytes]]:
    """The fields of a message; empty if the bytes are not one."""
    fields: list[tuple[int, int, int | bytes]] = []
    place = 0
    try:
        while place < len(content):
            key, place = _read_varint(content, place)
            number, kind = key >> 3, key & 7
            value: int | bytes
            if kind == 0:
                value, place = _read_varint(content, place)
            else:
                if kind == 2:
                    length, place = _read_varint(content, place)
                else:
                    length = {1: 8, 5: 4}[kind]
                value, place = content[place : place + length], place + length
            if not number or place > len(content):
                return []
            fields.append((number, kind, value))
    except (IndexError, KeyError):
        return []
    return fields


def _read_varint(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, place


def _varint(number: int) -> bytes:
    number %= 2**64
    out = bytearray()
    while True:
        out.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(out)
