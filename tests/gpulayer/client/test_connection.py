"""One connection against bytes: every shape of answer that HTTP allows, and every way for it not to come."""

from __future__ import annotations

import itertools
import select
import socket

import pytest
from support.raw_server import plain_answer, raw_server, read_request, reset

from gpulayer.client import exchange
from gpulayer.client.connection import Connection
from gpulayer.client.exchange import HttpRequest, NoAnswer, Trouble
from gpulayer.client.http_answer import READ_BYTES

HEAD = b"POST /x HTTP/1.1\r\nHost: h\r\n\r\n"
BODY = b"0123456789" * 10


def ask(host, port, *, method="GET", head=b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n", body=None, seconds=5.0):
    """One exchange on a new connection: status, headers, content, and whether it can be used again."""
    connection = Connection(host, port, None)
    try:
        connection.open()
        answer = connection.ask(HttpRequest(method, "/x", {}, body, seconds), head)
        content = answer.content()
        return answer.status, answer.headers, content, answer.keeps
    finally:
        connection.close()


def answers(*pieces: bytes):
    """Reads a request and sends these pieces, each as a segment of its own."""

    def serve(connection, _):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_request(connection)
        for piece in pieces:
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)

    return serve


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + BODY + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "keeps"),
    [
        ([plain_answer(BODY)], True),
        ([bytes([byte]) for byte in plain_answer(BODY)], True),
        ([plain_answer(BODY, "Connection: close")], False),
        ([plain_answer(BODY) + b"more than was said"], False),
        ([CHUNKED], True),
        ([CHUNKED[:70], CHUNKED[70:]], True),
        ([b"HTTP/1.1 200 OK\r\n\r\n" + BODY], False),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n" + BODY], False),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + plain_answer(BODY)], True),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain_answer(BODY)], True),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\nHTT", plain_answer(BODY)[3:]], True),
        ([b"HTTP/1.1 103 Early Hints\r\n\r\n" + CHUNKED], True),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64;name=x\r\n" + BODY + b"\r\n0\r\nX-Trailer: y\r\n\r\n"], True),
        ([CHUNKED[: CHUNKED.index(BODY)], BODY[:1], BODY[1:], b"\r", b"\n0\r\n\r", b"\n"], True),
        ([plain_answer(BODY, *[f"X-{number}: {'x' * 1000}" for number in range(60)])], True),
        ([b"HTTP/1.1 200\r\nContent-Length: 100\r\n\r\n" + BODY], True),
        ([b"HTTP/1.1 200 OK\r\nX-Folded: one\r\n two\r\nContent-Length: 100\r\n\r\n" + BODY], True),
        ([b"HTTP/1.1 200 \r\ncontent-LENGTH:100\r\n\r\n" + BODY], True),
    ],
)
def test_every_shape_of_answer_is_read(pieces, keeps):
    with raw_server(answers(*pieces)) as server:
        status, _, content, kept = ask(server.host, server.port)
    assert (status, content, kept) == (200, BODY, keeps)


def test_a_large_body_comes_in_pieces_that_are_full():
    body = bytes(range(256)) * 4096
    size = 3 * READ_BYTES + 5
    with raw_server(answers(*[plain_answer(body)[start : start + 70_001] for start in range(0, len(body) + 100, 70_001)])) as server:
        connection = Connection(server.host, server.port, None)
        connection.open()
        answer = connection.ask(HttpRequest("GET", "/x", {}, None, 5.0), b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        pieces = list(answer.pieces(size))
        connection.close()
    assert b"".join(pieces) == body
    assert [len(piece) for piece in pieces[1:-1]] == [size] * len(pieces[1:-1])
    assert answer.keeps


def test_a_large_body_that_is_cut_is_said_to_be():
    with raw_server(answers(plain_answer(bytes(10 * READ_BYTES))[:-1])) as server:
        connection = Connection(server.host, server.port, None)
        connection.open()
        answer = connection.ask(HttpRequest("GET", "/x", {}, None, 5.0), b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        with pytest.raises(NoAnswer) as raised:
            list(answer.pieces(4 * READ_BYTES))
        connection.close()
    assert (raised.value.trouble, answer.keeps) == (Trouble.CUT, False)


def test_names_of_headers_are_in_lower_case():
    with raw_server(answers(plain_answer(b"", "Retry-After: 3", "X-EMPTY:", status="503 Service Unavailable"))) as server:
        status, headers, content, _ = ask(server.host, server.port)
    assert (status, content, headers["retry-after"], headers["x-empty"]) == (503, b"", "3", "")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n\r\n"])
def test_a_head_has_no_body_whatever_it_says_of_it(answer):
    with raw_server(answers(answer)) as server:
        _, _, content, keeps = ask(server.host, server.port, method="HEAD")
    assert (content, keeps) == (b"", True)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
    ],
)
def test_an_answer_without_content_ends_with_its_head(answer):
    with raw_server(answers(answer)) as server:
        assert ask(server.host, server.port)[2:] == (b"", True)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b"HTT"],
        [b"HTTP/1.1 200 OK\r\nContent-Le"],
        [plain_answer(BODY)[:-1]],
        [CHUNKED[:80]],
        [b"SSH-2.0-OpenSSH_9.6\r\n\r\n"],
        [b"HTTP/1.1 two hundred\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 200_000],
        [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"],
        [b"HTTP/1.1 2000 OK\r\nContent-Length: 100\r\n\r\n" + BODY],
        [b"HTTP/1.1 103 Early Hints\r\n\r\n"],
        [b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100 + plain_answer(BODY)],
    ],
)
def test_an_answer_that_is_cut_or_none_is_said_to_be(pieces):
    with raw_server(answers(*pieces)) as server, pytest.raises(NoAnswer) as raised:
        ask(server.host, server.port)
    assert raised.value.trouble is Trouble.CUT


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 20", plain_answer(BODY)[:-1]])
def test_silence_ends_at_the_deadline_wherever_it_begins(start):
    def serve(connection, _):
        read_request(connection)
        connection.sendall(start)
        connection.recv(1)

    with raw_server(serve) as server, pytest.raises(NoAnswer) as raised:
        ask(server.host, server.port, seconds=0.05)
    assert raised.value.trouble is Trouble.LATE


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_total_deadline_ends_an_answer_that_never_stops_to_come(start, monkeypatch):
    """Every piece of it comes in time; the clock goes on by a second whenever somebody looks."""
    clock = itertools.count()
    monkeypatch.setattr(exchange, "time", type("Clock", (), {"monotonic": staticmethod(lambda: float(next(clock)))}))

    def serve(connection, _):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_request(connection)
        connection.sendall(start)
        while True:
            connection.sendall(b"x")  # until the other side has gone

    with raw_server(serve) as server:
        connection = Connection(server.host, server.port, None)
        connection.open()
        request = HttpRequest("GET", "/x", {}, None, 30.0, ends_at=8.5)
        with pytest.raises(NoAnswer) as raised:
            sum(1 for _ in connection.ask(request, b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").pieces(10))
        connection.close()
    assert raised.value.trouble is Trouble.LATE
    assert next(clock) == 10  # it was looked at for each piece, and never after the end


@pytest.mark.parametrize("windows", [False, True])
def test_what_the_other_side_closed_is_stale(windows, monkeypatch):
    if windows:
        monkeypatch.delattr(select, "poll")

    def serve(connection, _):
        while read_request(connection):
            connection.sendall(plain_answer(BODY))

    with raw_server(serve) as server:
        connection = Connection(server.host, server.port, None)
        connection.open()
        assert not connection.is_stale()
        request = HttpRequest("GET", "/x", {}, None, 5.0)
        assert connection.ask(request, b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n").content() == BODY
        assert not connection.is_stale()
        server.connections[0].shutdown(socket.SHUT_RDWR)
        assert connection._socket.recv(1, socket.MSG_PEEK) == b""  # waits until the end has come
        assert connection.is_stale()
        connection.close()


def test_nobody_there_is_told_apart_from_a_cut():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with pytest.raises(NoAnswer) as raised:
        ask("127.0.0.1", port)
    assert (raised.value.trouble, raised.value.was_refused) == (Trouble.NOBODY, True)
    with raw_server(lambda connection, _: (read_request(connection), reset(connection))) as server, pytest.raises(NoAnswer) as raised:
        ask(server.host, server.port)
    assert (raised.value.trouble, raised.value.was_refused) == (Trouble.CUT, False)


def test_a_refusal_that_comes_before_all_was_sent_is_read():
    """A server that finds a part too large says so and closes, while the rest is on its way."""

    def serve(connection, _):
        connection.recv(100)
        connection.sendall(plain_answer(b"too large", "Connection: close", status="413 Too Large"))
        while connection.recv(1 << 20):  # with unread bytes, closing would reset the answer away
            pass

    with raw_server(serve) as server:
        status, _, content, _ = ask(server.host, server.port, method="PUT", head=HEAD, body=bytes(8 << 20))
    assert (status, content) == (413, b"too large")


class Recorded:
    """A socket that counts what is asked of it."""

    def __init__(self, one: socket.socket) -> None:
        self.asked: list[str] = []
        self._one = one

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self._one, name)


def test_a_call_is_one_write_and_one_read_and_no_delay_of_nagle():
    def serve(connection, _):
        while read_request(connection):
            connection.sendall(plain_answer(BODY))

    with raw_server(serve) as server:
        connection = Connection(server.host, server.port, None)
        connection.open()
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        recorded = connection._socket = Recorded(connection._socket)
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"
        for _ in range(3):
            recorded.asked.clear()
            assert connection.ask(HttpRequest("POST", "/x", {}, bytes(1000), 5.0), head).content() == BODY
            assert [name for name in recorded.asked if name != "settimeout"] == ["sendall", "recv"]
        connection.close()
