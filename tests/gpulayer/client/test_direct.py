"""Connections that are kept, replaced, shared by threads, closed under their readers, and trusted or not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import threading

import pytest
from support.raw_server import CERTIFICATE, plain_answer, raw_server, read_request

from gpulayer.client import direct
from gpulayer.client.direct import DirectExchange
from gpulayer.client.exchange import ExchangeClosed, FilePart, HttpRequest, NoAnswer, Trouble
from gpulayer.client.http_transport import HttpTransport
from gpulayer.errors import InvalidSpec


def get(target="/x", seconds=5.0):
    return HttpRequest("GET", target, {"X-One": "1"}, None, seconds)


def echo(connection, number):
    """Answers with the connection's number until the other side goes."""
    while read_request(connection):
        connection.sendall(plain_answer(b"%d" % number))


@pytest.fixture
def exchange():
    with raw_server(echo) as server:
        exchange = DirectExchange(server.host, server.port, None)
        yield exchange
        exchange.close()


def test_one_connection_serves_one_caller_after_the_other(exchange):
    assert [exchange.ask(get()).content for _ in range(5)] == [b"0"] * 5
    assert exchange.ask(get(), fresh=True).content == b"1"


@pytest.mark.parametrize("tls", [False, True])
def test_a_part_of_a_file_is_a_body(tmp_path, tls):
    data = os.urandom(3 * 1024 * 1024)
    (tmp_path / "file").write_bytes(data)
    came = []

    def serve(connection, number):
        while request := read_request(connection):
            came.append(request.partition(b"\r\n\r\n")[2])
            connection.sendall(plain_answer(b"%d" % number))

    context = ssl.create_default_context(cafile=CERTIFICATE) if tls else None
    with raw_server(serve, tls=tls) as server, (tmp_path / "file").open("rb", buffering=0) as file:
        exchange = DirectExchange(server.host, server.port, context)
        parts = [FilePart(file, 0, 1000), FilePart(file, 1000, len(data) - 1000)]
        assert [exchange.ask(HttpRequest("PUT", "/x", {}, part, 5.0)).content for part in parts] == [b"0", b"0"]
        assert exchange.ask(HttpRequest("PUT", "/x", {}, parts[0], 5.0), fresh=True).content == b"1"
        exchange.close()
    assert came == [data[:1000], data[1000:], data[:1000]]


def test_a_file_that_becomes_shorter_ends_its_connection(tmp_path, exchange):
    (tmp_path / "file").write_bytes(bytes(100_000))
    with (tmp_path / "file").open("rb", buffering=0) as file:
        with pytest.raises(InvalidSpec, match="shorter"):
            exchange.ask(HttpRequest("PUT", "/x", {}, FilePart(file, 0, 100_001), 5.0))
        with pytest.raises(InvalidSpec, match="shorter"):
            FilePart(file, 0, 100_001).read()
    assert exchange.ask(get()).content == b"1"


def test_callers_at_the_same_time_have_connections_of_their_own():
    together = threading.Barrier(4)

    def serve(connection, number):
        while read_request(connection):
            together.wait(10)
            connection.sendall(plain_answer(b"%d" % number))

    got = []
    with raw_server(serve) as server:
        exchange = DirectExchange(server.host, server.port, None)
        threads = [threading.Thread(target=lambda: got.append(exchange.ask(get()).content)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        exchange.close()
    assert sorted(got) == [b"0", b"1", b"2", b"3"]


def test_a_connection_that_the_server_has_closed_is_replaced():
    closed = threading.Event()

    def serve(connection, number):
        read_request(connection)
        connection.sendall(plain_answer(b"%d" % number))
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with raw_server(serve) as server:
        exchange = DirectExchange(server.host, server.port, None)
        for number in range(3):
            closed.clear()
            assert exchange.ask(get()).content == b"%d" % number
            assert closed.wait(10)
        exchange.close()


def test_a_connection_that_was_idle_for_long_is_replaced(exchange, monkeypatch):
    assert exchange.ask(get()).content == b"0"
    monkeypatch.setattr(direct, "KEEPALIVE_SECONDS", -1.0)
    assert exchange.ask(get()).content == b"1"


def test_only_so_many_are_kept(exchange, monkeypatch):
    monkeypatch.setattr(direct, "KEPT_CONNECTIONS", 0)
    assert [exchange.ask(get()).content for _ in range(2)] == [b"0", b"1"]


def test_a_failed_exchange_leaves_no_connection_behind():
    def serve(connection, number):
        read_request(connection)
        if number:
            connection.sendall(plain_answer(b"ok"))
            connection.recv(1)

    with raw_server(serve) as server:
        exchange = DirectExchange(server.host, server.port, None)
        with pytest.raises(NoAnswer):
            exchange.ask(get())
        assert (exchange._idle, exchange._busy) == ([], set())
        assert exchange.ask(get()).content == b"ok"
        exchange.close()


def test_close_wakes_those_who_wait_and_refuses_those_who_come():
    asked = threading.Semaphore(0)

    def serve(connection, _):
        read_request(connection)
        asked.release()
        connection.recv(1)

    ended = []

    def wait(use):
        try:
            use()
        except BaseException as error:
            ended.append(type(error))

    def stream():
        with exchange.stream(get(seconds=30)):
            pass

    with raw_server(serve) as server:
        exchange = DirectExchange(server.host, server.port, None)
        threads = [threading.Thread(target=wait, args=(use,)) for use in (lambda: exchange.ask(get(seconds=30)), stream)]
        for thread in threads:
            thread.start()
            assert asked.acquire(timeout=10)
        exchange.close()
        for thread in threads:
            thread.join(5)
        assert ended == [ExchangeClosed, ExchangeClosed]
        with pytest.raises(ExchangeClosed):
            exchange.ask(get())


def test_an_interrupt_ends_the_wait_and_the_connection():
    gone = threading.Event()

    def serve(connection, _):
        read_request(connection)
        connection.settimeout(2)
        while not gone.is_set():  # a signal between Python's own check and the system call is missed
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                if not connection.recv(1):
                    gone.set()

    with raw_server(serve) as server:
        exchange = DirectExchange(server.host, server.port, None)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a run in the background has as ignored
        try:
            with pytest.raises(KeyboardInterrupt):
                exchange.ask(get(seconds=30))
        finally:
            signal.signal(signal.SIGINT, before)
        assert gone.wait(10)
        exchange.close()


def test_a_forked_process_takes_no_answer_of_its_parent(exchange):
    exchange.ask(get())
    (kept,) = exchange._idle
    exchange._pid = -1  # as in a child, whose pid is another
    assert exchange.ask(get()).content == b"1"
    kept.close()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "[::1]")])
def test_the_host_header_names_the_host_as_urls_do(family, host):
    def serve(connection, _):
        request = read_request(connection)
        connection.sendall(plain_answer(request))

    with raw_server(serve, family=family) as server:
        exchange = DirectExchange(server.host, server.port, None)
        sent = exchange.ask(get("/a?b=c")).content.decode().split("\r\n")
        exchange.close()
    assert sent == ["GET /a?b=c HTTP/1.1", f"Host: {host}:{server.port}", "Accept-Encoding: identity", "X-One: 1", "", ""]


class TestTls:
    @pytest.fixture
    def server(self):
        with raw_server(echo, tls=True) as server:
            yield server

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_a_certificate_that_the_environment_names_is_trusted(self, server, monkeypatch, host):
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        transport = HttpTransport(server.url.replace("127.0.0.1", host), None)
        assert isinstance(transport._exchange, DirectExchange)
        for _ in range(3):
            assert transport._exchange.ask(get()).status == 200
        transport.close()

    def test_another_one_is_not(self, server, monkeypatch):
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        transport = HttpTransport(server.url, None)
        with pytest.raises(NoAnswer) as raised:
            transport._exchange.ask(get())
        assert raised.value.trouble is Trouble.UNTRUSTED
        transport.close()

    def test_a_name_that_the_certificate_does_not_have_is_not(self, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        with raw_server(echo, family=socket.AF_INET6, tls=True) as server:
            transport = HttpTransport(server.url, None)
            with pytest.raises(NoAnswer) as raised:
                transport._exchange.ask(get())
            assert raised.value.trouble is Trouble.UNTRUSTED
            transport.close()

    def test_close_wakes_a_reader_and_a_handshake(self, monkeypatch):
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        asked = threading.Event()

        def serve(connection, _):
            read_request(connection)
            asked.set()
            connection.recv(1)

        ended = []

        def wait(transport):
            try:
                transport._exchange.ask(get(seconds=30))
            except ExchangeClosed as error:
                ended.append(type(error))

        connected = threading.Event()

        def mute(connection, _):
            connection.recv(1)
            connected.set()
            connection.recv(1 << 20)
            connection.recv(1)

        with raw_server(serve, tls=True) as speaks, raw_server(mute) as silent:
            for url, ready in ((speaks.url, asked), (silent.url.replace("http:", "https:"), connected)):
                transport = HttpTransport(url, None)
                thread = threading.Thread(target=wait, args=(transport,))
                thread.start()
                assert ready.wait(10)
                transport.close()
                thread.join(2)
                assert not thread.is_alive()
        assert ended == [ExchangeClosed, ExchangeClosed]
