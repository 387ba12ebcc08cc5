"""The services that change the configuration: validation, audit trail and version in one transaction."""

from __future__ import annotations

from confdb.services.audit import WantedChanges
from confdb.services.service import ConfigService
from confdb.services.subscriptions import QueueTails
from confdb.services.views import (
    AuditView,
    Changed,
    EventCodeView,
    NamespaceView,
    Page,
    PublisherGroupView,
    StressRuleView,
    SubscriberGroupView,
    SubscriptionView,
    TopicView,
    WhitelistView,
)

__all__ = [
    "AuditView",
    "Changed",
    "ConfigService",
    "EventCodeView",
    "NamespaceView",
    "Page",
    "PublisherGroupView",
    "QueueTails",
    "StressRuleView",
    "SubscriberGroupView",
    "SubscriptionView",
    "TopicView",
    "WantedChanges",
    "WhitelistView",
]
