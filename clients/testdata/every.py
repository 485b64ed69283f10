"""Drives a node through every operation, with the client that openapi-python-client makes.

every.py URL KEY prints the name of each operation that succeeded.
"""

import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from postdate_client import AuthenticatedClient, models
from postdate_client.api.inbox import acknowledge_messages, read_inbox, receive_messages
from postdate_client.api.keys import create_key, list_keys, revoke_key, who_am_i
from postdate_client.api.messages import (
    cancel_message,
    cancel_messages,
    get_failures,
    get_job,
    get_message,
    get_upcoming,
    list_messages,
    patch_message,
    purge_messages,
    put_message,
    redrive_messages,
    schedule_batch,
    schedule_message,
    trigger_message,
)
from postdate_client.api.operations import (
    change_channel,
    get_cluster,
    get_health,
    get_metrics,
    get_open_api,
    get_ready,
    get_stats,
    list_channels,
)
from postdate_client.api.recurrences import preview_recurrence
from postdate_client.api.tasks import define_task, list_tasks
from postdate_client.api.tenants import change_tenant, list_tenants
from postdate_client.types import Response

url, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key, raise_on_unexpected_status=True)
T = TypeVar("T")
CHANNEL = "inbox:python"
soon = datetime.now(timezone.utc) + timedelta(hours=1)


def ok(operation: Callable[..., Response[Any]], kind: type[T], *args: Any, **more: Any) -> T:
    """Calls an operation and returns the answer, which is to be a success of this type."""
    answer = operation(*args, client=client, **more)
    assert 200 <= answer.status_code < 300, (operation, answer.content)
    assert isinstance(answer.parsed, kind), (operation, answer.parsed)
    print(operation.__module__.split(".")[-1])
    return answer.parsed


def schedule(name: str, **more: Any) -> models.Schedule:
    return models.Schedule(schedule_id=name, channel=CHANNEL, payload={"order": [1, None, "é"]}, **more)


made = ok(schedule_message.sync_detailed, models.Scheduled, body=schedule("py-1", execution_time=soon))
assert made.status is models.Status.PENDING and made.execution_time - soon < timedelta(milliseconds=1)
ok(put_message.sync_detailed, models.Scheduled, "py-2", body=schedule("py-2", delay="PT1H", priority=models.Priority.HIGH, labels=["a", "b"]))
ok(patch_message.sync_detailed, models.Scheduled, "py-2", body=models.Change(delay="PT2H", labels=["b", "c"]))
message = ok(get_message.sync_detailed, models.Message, "py-2")
assert message.payload == {"order": [1, None, "é"]} and message.priority is models.Priority.HIGH
found = ok(list_messages.sync_detailed, models.MessagePage, label="c", id_prefix="py-")
assert message.labels == ["b", "c"] and [m.schedule_id for m in found.messages] == ["py-2"]
ok(patch_message.sync_detailed, models.Scheduled, "py-2", body=models.Change(labels=None))
assert not ok(get_message.sync_detailed, models.Message, "py-2").labels

rule = models.Recurrence(cron="30 2 * * *", timezone="Europe/Berlin", gap=models.Gap.SKIP)
ok(put_message.sync_detailed, models.Scheduled, "py-series", body=schedule("py-series", recurrence=rule))
change = models.Change(recurrence=models.RecurrenceChange(gap=None, max_runs=5))
ok(patch_message.sync_detailed, models.Scheduled, "py-series", body=change)
begun = ok(trigger_message.sync_detailed, models.Scheduled, "py-series")
assert begun.schedule_id.startswith("py-series/")
series = ok(get_message.sync_detailed, models.Message, "py-series").series
assert isinstance(series, models.Series) and series.fired == 1

results = ok(
    schedule_batch.sync_detailed,
    models.BatchResults,
    body=[schedule("py-3", delay="1h"), schedule("py-4", delay="never"), schedule("py-5", delay="0s")],
).results
assert results[0].created is True and results[0].status is models.Status.PENDING
assert isinstance(results[1].error, models.Problem)
assert results[1].error.type_ is models.ProblemType.INVALID_FIELD
assert results[1].error.pointer == "/delay"

page = ok(list_messages.sync_detailed, models.MessagePage, status=models.Status.PENDING, channel=CHANNEL)
assert "py-1" in [m.schedule_id for m in page.messages]
inbox: list[models.InboxMessage] = []
cursor = ""
while not {"py-5", "py-series"} <= {m.schedule_id for m in inbox}:
    read = ok(read_inbox.sync_detailed, models.InboxPage, "python", after=cursor, wait="30s")
    assert read.messages, "nothing came for 30 seconds"
    inbox, cursor = inbox + read.messages, read.next_cursor
assert inbox[0].payload == {"order": [1, None, "é"]}

worker = ("python", "worker")
receive = models.Receive(limit=1, wait="0s", visibility="PT1M")
received = ok(receive_messages.sync_detailed, models.Received, *worker, body=receive).messages
assert received[0].schedule_id == inbox[0].schedule_id and received[0].deliveries == 1
ack = models.Acknowledge(receipts=[received[0].receipt, "none"])
acks = ok(acknowledge_messages.sync_detailed, models.AckResults, *worker, body=ack).results
assert acks[0].acked is True
assert isinstance(acks[1].error, models.Problem)

gone = ok(cancel_message.sync_detailed, models.Cancelled, "py-1")
assert gone.status == "CANCELLED"
outcomes = ok(
    cancel_messages.sync_detailed, models.CancelResults, body=models.Cancel(schedule_ids=["py-2", "py-5"])
).results
assert outcomes[0].status is models.Status.CANCELLED
assert isinstance(outcomes[1].error, models.Problem)
assert outcomes[1].error.message_status is models.Status.DELIVERED
nobody = models.Cancel(filter_=models.JobFilter(id_prefix="nobody-"))
started = ok(cancel_messages.sync_detailed, models.JobStarted, body=nobody)
job = ok(get_job.sync_detailed, models.Job, started.job_id)
assert job.failed == 0 and job.filter_.id_prefix == "nobody-"
for try_again in (redrive_messages, purge_messages):
    outcomes = ok(try_again.sync_detailed, models.CancelResults, body=models.Cancel(schedule_ids=["py-5"])).results
    assert isinstance(outcomes[0].error, models.Problem)
    assert outcomes[0].error.type_ is models.ProblemType.CONFLICT
delivered = ok(get_message.sync_detailed, models.Message, "py-5")
assert isinstance(delivered.attempt_log, list) and delivered.attempt_log[0].outcome == "delivered"

failures = ok(get_failures.sync_detailed, models.Failures, channel=CHANNEL)
assert failures.exact and isinstance(failures.groups, list)

upcoming = ok(get_upcoming.sync_detailed, models.Upcoming, step="PT10M", channel=CHANNEL)
assert len(upcoming.slots) == 6 and upcoming.slots[0].exact

preview = models.Preview(recurrence=rule, from_=datetime(2027, 3, 27, tzinfo=timezone.utc), count=3)
occurrences = ok(preview_recurrence.sync_detailed, models.Occurrences, body=preview).occurrences
assert occurrences[1].time == datetime(2027, 3, 29, 0, 30, tzinfo=timezone.utc)  # no 2:30 on the 28th

frequency = models.TaskFrequency(time_unit=models.TimeUnit.HOURS, time=1)
definition = models.TaskDefinition(
    host="default", name="py", action=models.TaskAction.INSERT, frequency=frequency, topic=CHANNEL, data=[1]
)
ok(define_task.sync_detailed, models.Task, body=definition)
tasks = ok(list_tasks.sync_detailed, list, name="py")
assert tasks[0].frequency == frequency and tasks[0].data == [1]

changed = ok(
    change_channel.sync_detailed,
    models.ChannelSettings,
    body=models.ChannelChange(channel=CHANNEL, paused=True, max_per_second=0.5, failure_channel="inbox:failed"),
)
assert changed.paused and changed.max_per_second == 0.5 and changed.failure_channel == "inbox:failed"
channels = ok(list_channels.sync_detailed, models.ChannelList).channels
assert [c.state for c in channels if c.channel == CHANNEL] == [models.ChannelState.PAUSED]

wish = models.KeyWish(tenant="python", scopes=[models.Scope.SCHEDR], expires="1h")
new = ok(create_key.sync_detailed, models.NewKey, body=wish)
assert new.id in [k.id for k in ok(list_keys.sync_detailed, models.KeyList).keys]
caller = ok(who_am_i.sync_detailed, models.Caller)
assert caller.asked and caller.key_id == "admin-key" and models.Scope.ADMIN in caller.scopes
assert ok(revoke_key.sync_detailed, models.RevokedKey, new.id).revoked
limits = ok(change_tenant.sync_detailed, models.Tenant, "python", body=models.TenantChange(pending_max=7, weight=None))
assert limits in ok(list_tenants.sync_detailed, models.TenantList).tenants

cluster = ok(get_cluster.sync_detailed, models.Cluster)
assert len(cluster.buckets) > 0
figures = ok(get_stats.sync_detailed, models.Stats)
assert figures.own_series and figures.nodes == [cluster.node] and len(figures.slots) == 61
assert ok(get_health.sync_detailed, models.Health).status is models.HealthStatus.OK
assert ok(get_ready.sync_detailed, models.Health).status is models.HealthStatus.READY
assert "postdate_" in ok(get_metrics.sync_detailed, str)
assert ok(get_open_api.sync_detailed, models.Document).openapi == "3.1.0"

# A refusal has its type too.
refusal = get_message.sync("none", client=client)
assert isinstance(refusal, models.Problem) and refusal.type_ is models.ProblemType.NOT_FOUND
stranger = AuthenticatedClient(base_url=url, token="pd_none")
unknown = get_message.sync("py-1", client=stranger)
assert isinstance(unknown, models.Problem) and unknown.status == 401
