"""The names of our extension headers and destinations. The bottom layer: plain constants.

Each header is one row of PROTOCOL.md section G, which says who may send it, on which frame, and
what a plain peer sees. STOMP's own headers are not here.
"""

from __future__ import annotations

from typing import Final

# What a subscriber asks of a queue.
PREFETCH_COUNT: Final = "prefetch-count"
EXCLUSIVE: Final = "exclusive"
AUTO_DELETE: Final = "auto-delete"

# What a sender asks of the broker.
PERSISTENT: Final = "persistent"
REQUIRE_CONSUMERS: Final = "require-consumers"

# What the broker says on a RECEIPT.
DISPOSITION: Final = "disposition"
CONSUMERS: Final = "consumers"
DURABLE: Final = "durable"
RESULT: Final = "result"

# What a consumer says on a NACK.
REQUEUE: Final = "requeue"

# What the broker says on a MESSAGE.
REDELIVERED: Final = "redelivered"
DELIVERY_COUNT: Final = "delivery-count"
SENDER: Final = "sender"

# The Nebulous Protocol's own (C.2).
REPLY_TO: Final = "neb-reply-to"
REPLY_ID: Final = "neb-reply-id"
IN_REPLY_TO: Final = "neb-in-reply-to"

# Ours, on requests.
TIMEOUT: Final = "neb-timeout"
NO_REPLY: Final = "neb-no-reply"
JOB_ID: Final = "neb-job-id"
JOB_DEDUPE: Final = "neb-job-dedupe"
JOB_TIMEOUT: Final = "neb-job-timeout"
JOB_NOTIFY: Final = "neb-job-notify"
JOB_PRIORITY: Final = "neb-job-priority"
JOB_PROGRESS_EVERY: Final = "neb-job-progress-every"

# Ours, on replies.
RESPONSE: Final = "neb-response"
ERROR_CODE: Final = "neb-error-code"

# Values of `disposition`. The first three are MaXaM's.
ACCEPTED: Final = "accepted"
REJECTED_INVALID: Final = "rejected-invalid"
REJECTED_UNAUTHORISED: Final = "rejected-unauthorised"
REJECTED_FULL: Final = "rejected-full"
REJECTED_NO_CONSUMER: Final = "rejected-no-consumer"

# Destinations of ours.
INBOX_PREFIX: Final = "/queue/nebula.inbox."
RESERVED_QUEUE_PREFIX: Final = "/queue/nebula."
JOB_TOPIC_PREFIX: Final = "/topic/jobs."
