"""The web front end: a FastAPI application with one client, and a page with a button for the report."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel

from nebula import Client, JobStatus, NebulaError, problem_of
from services.shop.orders import Order, place
from services.shop.prices import Count, Item, Price, catalogue
from services.shop.report import Sold, takings


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Client]]:
    """One client for all requests."""
    async with Client() as client:
        yield {"client": client}


def nebula_client(request: Request) -> Client:
    """The client of the lifespan."""
    client: Client = request.state.client
    return client


Nebula = Annotated[Client, Depends(nebula_client)]

web = FastAPI(title="Shop", lifespan=lifespan)


class Wish(BaseModel):
    """An order as the browser sends it."""

    item: Item
    count: Count = 1


@web.exception_handler(NebulaError)
async def tell(_: Request, error: NebulaError) -> JSONResponse:
    """Turn failed calls into the responses that the broker's `POST /call` gives."""
    problem = problem_of(error)
    return JSONResponse(problem.body, problem.status)


@web.get("/")
async def page() -> FileResponse:
    """The page with the button."""
    return FileResponse(Path(__file__).with_name("front.html"))


@web.get("/prices")
async def prices(client: Nebula) -> list[Price]:
    """Prices by item."""
    return await client.call(catalogue)


@web.post("/orders", status_code=201)
async def order(wish: Wish, client: Nebula) -> Order:
    """Place an order."""
    return await client.call(place, wish.item, wish.count)


@web.post("/reports", status_code=202)
async def start_report(client: Nebula, day: date | None = None) -> dict[str, str]:
    """Start the report of a day, by default yesterday."""
    job = await client.start(takings, day)
    return {"job": job.id}


@web.get("/reports/{job:path}/progress", response_class=EventSourceResponse)
async def progress(job: str, client: Nebula) -> AsyncIterable[JobStatus]:
    """The progress of a report until its end, as server-sent events."""
    async for status in client.job(job).watch():
        yield status


@web.get("/reports/{job:path}")
async def report(job: str, client: Nebula) -> list[Sold]:
    """The result of a report, once it is done."""
    return await client.job(job).result(list[Sold])
