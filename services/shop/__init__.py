"""A shop: three services, a FastAPI front end, and a nightly Spark report.

$ nebula broker
$ nebula run services.shop.prices:app
$ nebula run services.shop.stock:app
$ nebula run services.shop.orders:app
$ nebula record /queue/shop.orders --into recorded
$ nebula run services.shop.report:app
$ uvicorn services.shop.front:web

`services/shop/crontab` runs the report each night.
"""
