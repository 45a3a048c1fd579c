"""The client library: `Client` (async), `SyncClient` (blocking) and `Agent`. See README.md."""

from coord.client.agent import Agent
from coord.client.client import Client
from coord.client.errors import (
    Busy,
    ClientClosed,
    CoordError,
    DoneButUnread,
    EventsGone,
    InvalidRequest,
    NotDone,
    NotFound,
    OutcomeUnknown,
    Rejected,
    ServerRefused,
    Unavailable,
)
from coord.client.inbox import Superseded
from coord.client.sync import SyncClient
from coord.client.views import (
    ClusterView,
    Decided,
    EventPage,
    GangView,
    HostView,
    IncidentView,
    JobView,
    LogPage,
    MemberView,
    RaftView,
)

__all__ = [
    "Agent",
    "Busy",
    "Client",
    "ClientClosed",
    "ClusterView",
    "CoordError",
    "Decided",
    "DoneButUnread",
    "EventPage",
    "EventsGone",
    "GangView",
    "HostView",
    "IncidentView",
    "InvalidRequest",
    "JobView",
    "LogPage",
    "MemberView",
    "NotDone",
    "NotFound",
    "OutcomeUnknown",
    "RaftView",
    "Rejected",
    "ServerRefused",
    "Superseded",
    "SyncClient",
    "Unavailable",
]
