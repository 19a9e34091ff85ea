"""Which calls a provider counts together. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from evalfleet.model.ids import sha256
from evalfleet.model.model_call import Account


def account_key(account: Account, secret: str | None) -> str:
    """What names the account in a cluster: two runs with the same key and model share it, under whatever name.

    `secret` is the value of its key, of which a digest of ten characters is shown; without one the name of the key
    stands for it. The provider is named by its host: two adapters may speak to one.
    """
    host = urlsplit(account.base_url).netloc.rpartition("@")[2].lower() or account.provider
    owner = account.key or ""
    if secret is not None:
        owner = sha256(f"evalfleet account {secret.strip()}".encode())[:10]
    return f"{host}/{owner}/{account.model}"
