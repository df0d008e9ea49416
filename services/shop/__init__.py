"""A shop: three services, a web front on FastAPI, and a nightly report by Spark.

$ nebula broker
$ nebula run services.shop.prices:app
$ nebula run services.shop.stock:app
$ nebula run services.shop.orders:app
$ nebula record /queue/shop.orders --into recorded
$ nebula run services.shop.report:app
$ uvicorn services.shop.front:web

`services/shop/crontab` has the report made each night.
"""
