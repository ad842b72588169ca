"""The HTTP client under `openai`'s: what leaves this machine, and how much may come back.

Decisions:
1. Only the headers listed here are sent. What `openai` adds from the environment (OPENAI_ORG_ID, OPENAI_PROJECT_ID,
   OPENAI_CUSTOM_HEADERS) belongs to another server, and so do proxies, which `trust_env` would read.
2. An answer is read in pieces and given up at `MAX_BODY_BYTES`, counted after decompression. The longest honest answers are
   some hundred kB.
3. The answer is handed on with the request that `openai` made, which does not hold the key.
4. Redirects are not followed; `refusals` says where one leads.
"""

from __future__ import annotations

from typing import Any

from toishi.judging.chat_request import TryFailed

MAX_BODY_BYTES = 8_000_000
_KEPT = (b"content-type", b"retry-after", b"location")


def http_client(key: str | None) -> Any:
    """A client for `openai.AsyncOpenAI(http_client=...)`. Its requests raise TryFailed for an answer that is too long."""
    import openai

    authorization = {} if key is None else {"authorization": f"Bearer {key}"}

    class Client(openai.DefaultAsyncHttpxClient):
        async def send(self, request: Any, **options: Any) -> Any:
            headers = {
                "content-type": "application/json",
                "accept": "application/json",
                "user-agent": "toishi",
                **authorization,
            }
            bare = self.build_request(request.method, request.url, content=request.content, headers=headers)
            response = await super().send(bare, **(options | {"stream": True}))
            try:
                body = await _capped(response)
            finally:
                await response.aclose()
            kept = [(name, value) for name, value in response.headers.raw if name.lower() in _KEPT]
            return type(response)(response.status_code, headers=kept, content=body, request=request)

    return Client(follow_redirects=False, trust_env=False, timeout=None)


async def _capped(response: Any) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise TryFailed("bad_reply", f"the server sent more than {MAX_BODY_BYTES:,} bytes for one reply")
    return bytes(body)
