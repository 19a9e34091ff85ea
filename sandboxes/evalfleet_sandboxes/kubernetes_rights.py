"""What we may do in a namespace, and the one object beside Pods that we make there: a policy that closes networks."""

from __future__ import annotations

import asyncio

from evalfleet_sandboxes.kubernetes_api import Cluster, Refused, Unreachable
from evalfleet_sandboxes.kubernetes_pods import POLICY, closing_policy

#: Resources, subresources and verbs; both `get` and `create` of exec since versions differ in what they ask for.
_RIGHTS = (
    *(("pods", "", verb) for verb in ("create", "delete", "get", "list", "watch")),
    *(("pods", "exec", verb) for verb in ("create", "get")),
)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_POLICIES = "networking.k8s.io/v1"


async def missing_rights(cluster: Cluster) -> list[str]:
    """The rights that a run needs and that we don't have. Raises Refused, Unreachable."""
    allowed = await asyncio.gather(*(_allowed(cluster, *right) for right in _RIGHTS))
    return [_said(*right) for right, has in zip(_RIGHTS, allowed, strict=True) if not has]


async def closed_network(cluster: Cluster) -> str | None:
    """See to it that the namespace has the policy; why it has none, else None."""
    path = cluster.path("networkpolicies", group=_POLICIES)
    try:
        await cluster.call("GET", f"{path}/{POLICY}")
        return None
    except (Refused, Unreachable) as error:
        if not isinstance(error, Refused) or error.status not in (403, 404):
            return f"the policy {POLICY} could not be looked up: {error}"
    try:
        await cluster.call("POST", path, body=closing_policy())
    except (Refused, Unreachable) as error:
        if not (isinstance(error, Refused) and error.status == 409):  # another worker was quicker
            return f"the policy {POLICY} is not there and could not be made: {error}"
    return None


async def _allowed(cluster: Cluster, resource: str, part: str, verb: str) -> bool:
    asked = {"namespace": cluster.namespace, "verb": verb, "resource": resource, "subresource": part}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = await cluster.call("POST", _REVIEWS, body={**review, "spec": {"resourceAttributes": asked}})
    return bool(answer["status"].get("allowed"))


def _said(resource: str, part: str, verb: str) -> str:
    return f"{verb} {resource}/{part}" if part else f"{verb} {resource}"
