"""A mail server on this machine: SMTP as far as a client needs it, with or without TLS, that fails as it is told."""

from __future__ import annotations

import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any


class MailReceiver:
    def __init__(self, tls: ssl.SSLContext | None, *, at_once: bool) -> None:
        self.tls, self.at_once = tls, at_once
        self.answers: dict[str, str] = {}
        """command → what to answer to it instead; `hang` and `drip` stop there"""
        self.got: list[EmailMessage] = []
        self.commands: list[str] = []
        self.encrypted: list[bool] = []
        self.port = 0
        self.released = threading.Event()


@contextmanager
def receiving_mail(tls: ssl.SSLContext | None = None, *, at_once: bool = False) -> Iterator[MailReceiver]:
    """`at_once`: TLS from the first byte on, and not after STARTTLS."""
    receiver = MailReceiver(tls, at_once=at_once)

    class Handler(_Handler):
        to = receiver

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()


class _Handler(socketserver.BaseRequestHandler):
    to: MailReceiver

    def handle(self) -> None:
        try:
            if self.to.at_once:
                self._encrypt()
            self._talk()
        except OSError:
            pass
        finally:
            self.request.close()

    def _encrypt(self) -> None:
        if self.to.answers.get("TLS") == "hang":
            self.to.released.wait(600)
        assert self.to.tls is not None
        self.request: Any = self.to.tls.wrap_socket(self.request, server_side=True)

    def _talk(self) -> None:
        lines = self.request.makefile("rb")
        encrypted = self.to.at_once
        self._say("CONNECT", "220 here")
        while line := lines.readline():
            command = line.decode().strip()
            self.to.commands.append(command)
            verb = command.split()[0].upper()
            if verb == "EHLO":
                offers = ["STARTTLS"] * (self.to.tls is not None and not encrypted) + ["AUTH PLAIN", "8BITMIME"]
                self._say("EHLO", "\r\n".join(f"250-{one}" for one in ["here", *offers]) + "\r\n250 SIZE 100000")
            elif verb == "STARTTLS":
                self._say("STARTTLS", "220 go on")
                self._encrypt()
                lines, encrypted = self.request.makefile("rb"), True
            elif verb == "AUTH":
                self._say("AUTH", "235 welcome")
            elif verb == "DATA":
                self._say("DATA", "354 go on")
                content = b""
                while not content.endswith(b"\r\n.\r\n"):
                    content += lines.readline()
                if self._say("END", "250 taken").startswith("2"):
                    self.to.got.append(message_from_bytes(content[:-3], policy=default))
                    self.to.encrypted.append(encrypted)
            elif verb == "QUIT":
                self._say("QUIT", "221 bye")
                return
            else:
                self._say(verb, "250 ok")

    def _say(self, command: str, usual: str) -> str:
        answer = self.to.answers.get(command, usual)
        if answer == "hang":
            self.to.released.wait(600)
        elif answer == "drip":
            while not self.to.released.is_set():
                self.request.sendall(b"2")
                time.sleep(0.05)
        else:
            self.request.sendall(answer.encode() + b"\r\n")
        return answer
