"""A certificate authority of our own, and the certificates that it signs for hosts."""

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
        """its certificate, which the client must trust"""
        self._contexts: dict[str, ssl.SSLContext] = {}

    @classmethod
    def temporary(cls, folder: Path) -> Authority:
        """An authority whose private key is never written to disk."""
        ca = trustme.CA(organization_name="Bylaw", organization_unit_name="contract run")
        file = folder / "bylaw-ca.pem"
        ca.cert_pem.write_to_path(file)
        return cls(ca, file)

    @classmethod
    def persistent(cls, folder: Path) -> Authority:
        """The authority of this folder, created once: an agent that its owner starts must know it beforehand."""
        file, key = folder / "bylaw-ca.pem", folder / "bylaw-ca.key"
        if file.exists() and key.exists():
            return cls(trustme.CA.from_pem(file.read_bytes(), key.read_bytes()), file)
        folder.mkdir(parents=True, exist_ok=True)
        authority = cls.temporary(folder)
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(authority._ca.private_key_pem.bytes())
        return authority

    def context(self, host: str) -> ssl.SSLContext:
        """A context to answer as the host. Raises ValueError if the name is not a valid host name."""
        context = self._contexts.get(host)
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            # Some clients do not compare the address of this machine with the certificate, but its name.
            names = (host, "localhost") if host.startswith("127.") or host == "::1" else (host,)
            self._ca.issue_cert(*names).configure_cert(context)
            if len(self._contexts) >= _MOST_HOSTS:
                self._contexts.pop(next(iter(self._contexts)))
            self._contexts[host] = context
        return context

    def environment(self) -> dict[str, str]:
        """The variables in which the usual libraries look for a certificate authority."""
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE",
                 "GIT_SSL_CAINFO", "DENO_CERT", "CARGO_HTTP_CAINFO")  # fmt: skip
        return dict.fromkeys(names, str(self.file))
