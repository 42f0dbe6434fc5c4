"""The certificate authority that Bylaw makes for one contract, and the certificates that it signs for hosts."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import trustme

_MOST_HOSTS = 256


class Authority:
    def __init__(self, ca: trustme.CA, file: Path) -> None:
        self._ca = ca
        self.file = file
        """its certificate, for the agent to trust"""
        self._contexts: dict[str, ssl.SSLContext] = {}

    @classmethod
    def new(cls, folder: Path) -> Authority:
        """One whose key is never written down."""
        ca = trustme.CA(organization_name="Bylaw", organization_unit_name="contract run")
        file = folder / "bylaw-ca.pem"
        ca.cert_pem.write_to_path(file)
        return cls(ca, file)

    @classmethod
    def kept(cls, folder: Path) -> Authority:
        """The one of this folder, made once: an agent that its owner starts must know it beforehand."""
        file, key = folder / "bylaw-ca.pem", folder / "bylaw-ca.key"
        if file.exists() and key.exists():
            return cls(trustme.CA.from_pem(file.read_bytes(), key.read_bytes()), file)
        folder.mkdir(parents=True, exist_ok=True)
        made = cls.new(folder)
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(made._ca.private_key_pem.bytes())
        return made

    def context(self, host: str) -> ssl.SSLContext:
        """To speak as a host. Raises ValueError where the name can be no host's."""
        held = self._contexts.get(host)
        if held is None:
            held = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            held.set_alpn_protocols(["http/1.1"])
            self._ca.issue_cert(host).configure_cert(held)
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[host] = held
        return held

    def environment(self) -> dict[str, str]:
        """The variables by which the usual libraries find a certificate authority."""
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE",
                 "GIT_SSL_CAINFO", "DENO_CERT", "CARGO_HTTP_CAINFO")  # fmt: skip
        return dict.fromkeys(names, str(self.file))
