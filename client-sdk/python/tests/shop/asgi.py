"""The contract shop on FastAPI and uvicorn."""

from __future__ import annotations

import asyncio

import rules
from event_loop import serve
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from order import Order, count

from onceward import Onceward, Rejected
from onceward.asgi import Once

onceward = Onceward()
app = FastAPI()
if rules.IS_PROTECTED:
    app.add_middleware(Once, onceward, path="/orders", subject=rules.user, **rules.COMMON)
    app.add_middleware(Once, onceward, path="/retryable", subject=rules.user, at_most_once=False, **rules.COMMON)
    app.add_middleware(Once, onceward, path="/forms", subject="anonymous", token=True, **rules.COMMON)


@app.post("/orders")
@app.post("/retryable")
@app.post("/forms")
async def protected(request: Request) -> Response:
    return await run(Order(request.headers, rules.IS_PROTECTED))


@app.post("/open")
async def unprotected(request: Request) -> Response:
    return await run(Order(request.headers, is_protected=False))


async def run(order: Order) -> Response:
    async with asyncio.timeout(order.timeout):
        await asyncio.sleep(order.before())
        await asyncio.sleep(order.effect())
    order.state()
    if order.is_streamed:
        return StreamingResponse(order.chunks(), order.status)
    response = Response(order.body, order.status)
    for name, value in order.response_headers:
        response.headers.append(name, value)
    return response


@app.get("/orders")
def ledger() -> PlainTextResponse:
    return PlainTextResponse(count())


@app.post("/token")
async def token() -> JSONResponse:
    try:
        issued = await onceward.aissue()
    except Rejected as rejected:
        problem = rejected.problem
        return JSONResponse({"code": problem.code}, problem.status, {"onceward-outcome": problem.code})
    return JSONResponse(
        {"token": issued.token, "expires_at": issued.expires_at, "expires_in": issued.expires_in}, 201
    )


if __name__ == "__main__":
    serve(app)
