"""The client of Postdate, a delayed-message queue.

    async with Client() as client:
        message = Message(channel="rabbitmq:orders", delay=timedelta(minutes=15), payload={"order": 42})
        scheduled = await client.schedule(message)
        await client.cancel(scheduled.schedule_id)  # a guarantee: it is never delivered

Package postdate.receivers is for those who receive messages from webhooks, RabbitMQ and Kafka.
"""

from . import models, problems
from ._client import Client, ScheduleAnswer
from ._consume import Handler
from ._http import Answer, error_of
from .errors import NoAnswerError, PostdateError, ProblemError, UsageError
from .models import *  # noqa: F403
from .problems import *  # noqa: F403

__all__ = [
    "Answer",
    "Client",
    "Handler",
    "NoAnswerError",
    "PostdateError",
    "ProblemError",
    "ScheduleAnswer",
    "UsageError",
    "error_of",
]
__all__ += models.__all__
__all__ += problems.__all__
