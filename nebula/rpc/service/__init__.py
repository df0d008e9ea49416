"""A running service: its requests and messages go through four steps.

1. Take: `request_consumer` subscribes to the queues, `request_reader` makes a request of a message.
2. Bound: `worker_pool` bounds what is handled at a time, `concurrency_limits` bounds it by verb.
3. Run: `handler_runner` checks the request and calls its handler within the middleware.
4. Reply: `reply_sender` makes a reply of the result or error, and sends it; then the message is acknowledged.

`request_handler` puts them in a row for requests, `message_receiver` for functions declared with `on`, which
are acknowledged and get no reply. `responder` declares a service, `serving` is one run of it.
"""
