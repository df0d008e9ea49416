"""The names of our extension headers and destinations. The bottom layer: plain constants.

Each header is one row of PROTOCOL.md section G, which says who may send it, on which frame, and
what a plain peer sees. STOMP's own headers are not here.
"""

from __future__ import annotations

from typing import Final

# What a subscriber asks of a queue; SNAPSHOT and DURABLE of other destinations.
PREFETCH_COUNT: Final = "prefetch-count"
EXCLUSIVE: Final = "exclusive"
AUTO_DELETE: Final = "auto-delete"

# MaXaM's own, on SUBSCRIBE and CONNECT.
EAGER: Final = "eager"
CLIENT_ID: Final = "client-id"

# What a sender asks of the broker.
PERSISTENT: Final = "persistent"
REQUIRE_CONSUMERS: Final = "require-consumers"
RECEIPT_ON_REJECTION: Final = "receipt-on-rejection"

EXPIRES: Final = "expires"
DELAY: Final = "delay"
DELIVER_AT: Final = "deliver-at"
DEDUP_ID: Final = "dedup-id"
PRIORITY: Final = "priority"

# What the broker says on a RECEIPT.
DUPLICATE: Final = "duplicate"
DISPOSITION: Final = "disposition"
CONTENT_DISPOSITION: Final = "content-disposition"
CONSUMERS: Final = "consumers"
DURABLE: Final = "durable"
RESULT: Final = "result"

FAILED_RECEIPT: Final = "failed-receipt"

# What a consumer says on a NACK; and on the UNSUBSCRIBE of a queue.
REQUEUE: Final = "requeue"
REDELIVERY_DELAY: Final = "redelivery-delay"
KEEP_UNACKED: Final = "keep-unacked"

# What the broker says on a MESSAGE.
REDELIVERED: Final = "redelivered"
DELIVERY_COUNT: Final = "delivery-count"
SENDER: Final = "sender"
DEAD_LETTER_REASON: Final = "dead-letter-reason"
DEAD_LETTER_FROM: Final = "dead-letter-from"
DEAD_LETTER_AT: Final = "dead-letter-at"
DEAD_LETTER_DELIVERIES: Final = "dead-letter-deliveries"
DEAD_LETTER_EXPIRES: Final = "dead-letter-expires"

# What a consumer says on a NACK, and the broker on the dead letter that comes of it.
DEAD_LETTER_CODE: Final = "dead-letter-code"
DEAD_LETTER_TEXT: Final = "dead-letter-text"
DEAD_LETTER_HANDLER: Final = "dead-letter-handler"

# What the broker says on other MESSAGEs.
ORIGINAL_DESTINATION: Final = "original-destination"
SNAPSHOT: Final = "snapshot"

# What a publisher asks of a last-value destination.
EPHEMERAL: Final = "ephemeral"

# The Nebulous Protocol's own (C.2).
REPLY_TO: Final = "neb-reply-to"
REPLY_ID: Final = "neb-reply-id"
IN_REPLY_TO: Final = "neb-in-reply-to"

# W3C Trace Context, on requests.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# Ours, on requests.
TIMEOUT: Final = "neb-timeout"
NO_REPLY: Final = "neb-no-reply"
IDEMPOTENCY_KEY: Final = "neb-idempotency-key"
ON_BEHALF_OF: Final = "neb-on-behalf-of"
JOB_ID: Final = "neb-job-id"
JOB_DEDUPE: Final = "neb-job-dedupe"
JOB_TIMEOUT: Final = "neb-job-timeout"
JOB_NOTIFY: Final = "neb-job-notify"
JOB_PRIORITY: Final = "neb-job-priority"
JOB_PROGRESS_EVERY: Final = "neb-job-progress-every"
JOB_NOT_BEFORE: Final = "neb-job-not-before"

# Ours, on requests for a stream, its replies, and what gives credit for more of them.
STREAM: Final = "neb-stream"
STREAM_SEQ: Final = "neb-stream-seq"
STREAM_END: Final = "neb-stream-end"
CREDIT: Final = "neb-credit"

# Ours, on replies.
RESPONSE: Final = "neb-response"
ERROR_CODE: Final = "neb-error-code"

# Values of `disposition`. The first three are MaXaM's.
ACCEPTED: Final = "accepted"
REJECTED_INVALID: Final = "rejected-invalid"
REJECTED_UNAUTHORISED: Final = "rejected-unauthorised"
REJECTED_FULL: Final = "rejected-full"
REJECTED_NO_CONSUMER: Final = "rejected-no-consumer"

# Values of `result`.
IGNORED: Final = "ignored"
PAUSED: Final = "paused"
REMOVED: Final = "removed"

# Destinations of ours.
DEAD_LETTER_QUEUE: Final = "/queue/DLQ"
INBOX_PREFIX: Final = "/queue/nebula.inbox."
RESERVED_QUEUE_PREFIX: Final = "/queue/nebula."
RESERVED_TOPIC_PREFIX: Final = "/topic/nebula."
RESERVED_VALUE_PREFIX: Final = "X/nebula."
RESERVED_PREFIXES: Final = (RESERVED_QUEUE_PREFIX, RESERVED_TOPIC_PREFIX, RESERVED_VALUE_PREFIX)
BROKER_QUEUE: Final = "/queue/nebula.broker"
CANCEL_TOPIC_PREFIX: Final = "/topic/nebula.cancel."
SERVICES_TOPIC: Final = "/topic/nebula.services"
SERVICE_PREFIX: Final = "X/nebula.services."
JOB_PREFIX: Final = "X/jobs."
JOB_TOPIC_PREFIX: Final = "/topic/jobs."
