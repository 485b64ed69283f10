"""The part of the client that is for operators."""

from __future__ import annotations

from collections.abc import Mapping

from . import models
from ._caller import Caller
from ._forms import encoded, path_of, query_of
from ._http import Answer
from ._model import wire


class Operations(Caller):
    """The calls about channels, keys, tenants and the node."""

    async def channels(self) -> models.ChannelList:
        """Lists the channels of the cluster, by name, and the nodes that did not answer."""
        channels: list[models.Channel] = []
        missing: set[str] = set()
        cursor: str | None = None
        while True:
            page = await self._ask(models.ChannelList, "GET", "/v1/channels" + query_of(cursor=cursor))
            channels += page.channels
            missing.update(page.missing)
            cursor = page.next_cursor
            if cursor is None:
                return models.ChannelList(channels=channels, missing=sorted(missing))

    async def change_channel(self, change: models.ChannelChange) -> models.ChannelSettings:
        """Pauses, resumes or limits a channel on all nodes."""
        return await self._ask(models.ChannelSettings, "PATCH", "/v1/channels", wire(change))

    async def who_am_i(self) -> models.Caller:
        """Says what this client's key or token is for."""
        return await self._ask(models.Caller, "GET", "/v1/whoami")

    async def keys(self) -> list[models.Key]:
        """Lists the API keys of all tenants, the oldest first."""
        return (await self._ask(models.KeyList, "GET", "/v1/keys")).keys

    async def create_key(self, wish: models.KeyWish) -> models.NewKey:
        """Makes an API key. If that may have been done, a key may be there whose text nobody has: revoke it."""
        return await self._ask(models.NewKey, "POST", "/v1/keys", wire(wish))

    async def revoke_key(self, id: str) -> None:
        """Revokes an API key by its id."""
        await self._ask(models.RevokedKey, "DELETE", path_of("/v1/keys/{}", id))

    async def tenants(self) -> list[models.Tenant]:
        """Lists the tenants that have limits of their own, settings of channels, pending messages or keys."""
        return (await self._ask(models.TenantList, "GET", "/v1/tenants")).tenants

    async def change_tenant(self, tenant: str, change: models.TenantChange) -> models.Tenant:
        """Changes a tenant's limits on all nodes. None gives one back to the nodes' default."""
        return await self._ask(models.Tenant, "PATCH", path_of("/v1/tenants/{}", tenant), wire(change))

    async def cluster(self) -> models.Cluster:
        """Returns the cluster as one node sees it."""
        return await self._ask(models.Cluster, "GET", "/v1/cluster")

    async def stats(self) -> models.Stats:
        """Returns what the cluster did in the last ten minutes."""
        return await self._ask(models.Stats, "GET", "/v1/stats")

    async def health(self) -> models.Health:
        """Asks once whether the process is alive."""
        return (await self._transport.once(self._call("GET", "/healthz"))).read(models.Health)

    async def ready(self) -> models.Health:
        """Asks once whether the node can serve. If not, it raises a NotReadyError."""
        return (await self._transport.once(self._call("GET", "/readyz"))).read(models.Health)

    async def metrics(self) -> str:
        """Reads the node's metrics, in the text format of Prometheus."""
        return (await self._transport.do(self._call("GET", "/metrics"))).content.decode()

    async def openapi(self) -> models.Document:
        """Reads the API's OpenAPI document."""
        return await self._ask(models.Document, "GET", "/openapi.json")

    async def call(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
    ) -> Answer:
        """Makes a call for which there is no method.

        Args:
            method: Like GET.
            path: With its query, such as /v1/messages?limit=10.
            body: JSON, unless the headers have another Content-Type.
            headers: In addition to the client's.
            repeatable: It is safe to do the call twice, so it is tried again if it may have been done. A GET always
                is.
        """
        content = None if body is None else encoded(body)
        return await self._transport.do(self._call(method, path, content, headers, repeatable=repeatable))
