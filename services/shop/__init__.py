"""A shop: three services, a FastAPI front end, and a nightly Spark report.

$ nebula broker
$ nebula run services.shop.prices:app
$ nebula run services.shop.stock:app
$ nebula run services.shop.orders:app
$ nebula record /queue/shop.orders --into recorded
$ nebula run services.shop.report:app
$ uvicorn services.shop.front:web

Run each in a shell of its own, in a checkout, after `pip install '.[all,spark,java]' fastapi uvicorn`. Then
give an item a price, put some into stock, and buy some. The report is at http://127.0.0.1:8000:

$ nebula call prices mark item=hat cents:=1250
$ nebula pub shop.deliveries '{"id": "d1", "item": "hat", "count": 5}'
$ curl --json '{"item": "hat", "count": 2}' http://127.0.0.1:8000/orders

Orders are in the report once the recorder has closed their file, after five minutes at most.
`services/shop/crontab` runs the report each night.
"""
