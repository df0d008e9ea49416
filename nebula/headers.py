"""Names of Nebula's extension headers and destinations. The bottom layer: plain constants.

docs/reference/headers.toml has a row for each name, with its values, the frames it belongs to, and
equivalents on other brokers; docs/reference/headers.md shows the rows as tables. Section G of
docs/reference/protocol.md has the rules. A peer may ignore each header. STOMP's own headers are not here.
"""

from __future__ import annotations

from typing import Final

# On SUBSCRIBE to a queue (G.exclusive, G.auto-delete); SNAPSHOT and DURABLE are for other destinations.
PREFETCH_COUNT: Final = "prefetch-count"
EXCLUSIVE: Final = "exclusive"
AUTO_DELETE: Final = "auto-delete"

# MaXaM's own, on SUBSCRIBE and CONNECT (B.1).
EAGER: Final = "eager"
CLIENT_ID: Final = "client-id"

# On SEND (G.persistent, D.49).
PERSISTENT: Final = "persistent"
REQUIRE_CONSUMERS: Final = "require-consumers"
RECEIPT_ON_REJECTION: Final = "receipt-on-rejection"

# On SEND (G.delay, G.dedup).
EXPIRES: Final = "expires"
DELAY: Final = "delay"
DELIVER_AT: Final = "deliver-at"
DEDUP_ID: Final = "dedup-id"
PRIORITY: Final = "priority"

# On RECEIPT (D.4).
DUPLICATE: Final = "duplicate"
DISPOSITION: Final = "disposition"
CONTENT_DISPOSITION: Final = "content-disposition"
CONSUMERS: Final = "consumers"
DURABLE: Final = "durable"
RESULT: Final = "result"

FAILED_RECEIPT: Final = "failed-receipt"

# On NACK (G.retry); and on the UNSUBSCRIBE of a queue (G.drain).
REQUEUE: Final = "requeue"
REDELIVERY_DELAY: Final = "redelivery-delay"
KEEP_UNACKED: Final = "keep-unacked"

# On ACK (G.message-ids).
MESSAGE_IDS: Final = "message-ids"

# On MESSAGE (G.sender, G.dead-letter).
REDELIVERED: Final = "redelivered"
DELIVERY_COUNT: Final = "delivery-count"
SENDER: Final = "sender"
DEAD_LETTER_REASON: Final = "dead-letter-reason"
DEAD_LETTER_FROM: Final = "dead-letter-from"
DEAD_LETTER_AT: Final = "dead-letter-at"
DEAD_LETTER_DELIVERIES: Final = "dead-letter-deliveries"
DEAD_LETTER_EXPIRES: Final = "dead-letter-expires"

# On NACK, and on the dead letter that follows from it (G.retry).
DEAD_LETTER_CODE: Final = "dead-letter-code"
DEAD_LETTER_TEXT: Final = "dead-letter-text"
DEAD_LETTER_HANDLER: Final = "dead-letter-handler"

# On MESSAGE of copies and snapshots (G.copies, G.snapshot).
ORIGINAL_DESTINATION: Final = "original-destination"
SNAPSHOT: Final = "snapshot"

# On SEND to a last-value destination (G.ephemeral).
EPHEMERAL: Final = "ephemeral"

# The Nebulous Protocol's own (C.2).
REPLY_TO: Final = "neb-reply-to"
REPLY_ID: Final = "neb-reply-id"
IN_REPLY_TO: Final = "neb-in-reply-to"

# W3C Trace Context, on requests (G.tracing).
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

# On requests (G.timeout, D.50, G.idempotency, G.on-behalf, G.job-request).
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

# On requests for a stream, its replies, and messages that give credit (G.stream, G.credit).
STREAM: Final = "neb-stream"
STREAM_SEQ: Final = "neb-stream-seq"
STREAM_END: Final = "neb-stream-end"
CREDIT: Final = "neb-credit"

# On replies (G.reply-right, G.error-codes).
RESPONSE: Final = "neb-response"
ERROR_CODE: Final = "neb-error-code"

# Values of `disposition` (B.8). The first three are MaXaM's.
ACCEPTED: Final = "accepted"
REJECTED_INVALID: Final = "rejected-invalid"
REJECTED_UNAUTHORISED: Final = "rejected-unauthorised"
REJECTED_FULL: Final = "rejected-full"
REJECTED_NO_CONSUMER: Final = "rejected-no-consumer"

# Values of `result` (D.3, D.5).
IGNORED: Final = "ignored"
PAUSED: Final = "paused"
REMOVED: Final = "removed"

# Destinations of Nebula's (G.rights); the prefixes are reserved.
DEAD_LETTER_QUEUE: Final = "/queue/DLQ"
INBOX_PREFIX: Final = "/queue/nebula.inbox."
RESERVED_QUEUE_PREFIX: Final = "/queue/nebula."
RESERVED_TOPIC_PREFIX: Final = "/topic/nebula."
RESERVED_VALUE_PREFIX: Final = "X/nebula."
RESERVED_PREFIXES: Final = (RESERVED_QUEUE_PREFIX, RESERVED_TOPIC_PREFIX, RESERVED_VALUE_PREFIX)
BROKER_QUEUE: Final = "/queue/nebula.broker"
CANCEL_TOPIC_PREFIX: Final = "/topic/nebula.cancel."  # G.cancel
SERVICES_TOPIC: Final = "/topic/nebula.services"
SERVICE_PREFIX: Final = "X/nebula.services."
JOB_PREFIX: Final = "X/jobs."
JOB_TOPIC_PREFIX: Final = "/topic/jobs."  # G.job-status
