"""GET and PUT of lm:// on a plain socket, to damage a stored chunk behind the clients' backs."""

import socket
import struct
from dataclasses import dataclass, replace
from types import TracebackType

PUT, GET, EXIST = 1, 2, 3
OK = 200
# command, length, format, dtype, location, four dimensions, key padded with blanks.
REQUEST = struct.Struct("<9i150s")
# code, length, format, dtype, four dimensions, location.
REPLY = struct.Struct("<9i")
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Value:
    format: int
    dtype: int
    shape: tuple[int, int, int, int]
    payload: bytes

    def with_flipped_byte(self, position: int) -> "Value":
        payload = bytearray(self.payload)
        payload[position] ^= 0xFF
        return replace(self, payload=bytes(payload))


class Connection:
    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def get(self, key: str) -> Value | None:
        self._send(GET, key, Value(1, 2, (0, 0, 0, 0), b""))
        code, length, format, dtype, *shape, _ = REPLY.unpack(self._receive(REPLY.size))
        return Value(format, dtype, tuple(shape), self._receive(length)) if code == OK else None

    def put(self, key: str, value: Value) -> None:
        """A PUT is never answered: the answer to the EXIST behind it tells that it has arrived."""
        self._send(PUT, key, value)
        self._send(EXIST, key, Value(1, 2, (0, 0, 0, 0), b""))
        if REPLY.unpack(self._receive(REPLY.size))[0] != OK:
            raise ConnectionError(f"the server did not store {key}")

    def _send(self, command: int, key: str, value: Value) -> None:
        header = REQUEST.pack(
            command,
            len(value.payload),
            value.format,
            value.dtype,
            0,
            *value.shape,
            key.encode().ljust(150),
        )
        self.socket.sendall(header + value.payload)

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.socket.recv(size - len(received))
            if not piece:
                raise ConnectionError(f"the server closed after {len(received)} of {size} bytes")
            received += piece
        return bytes(received)
