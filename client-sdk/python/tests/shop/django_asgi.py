"""The contract shop on Django and uvicorn, with async views. `/rows` is that of the shop on gunicorn, and runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import rules
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django_shop import create_table, respond, rows, token
from event_loop import serve
from order import Order, count

settings.ROOT_URLCONF = __name__


@transaction.non_atomic_requests
async def orders(request: HttpRequest) -> HttpResponseBase:
    if request.method != "POST":
        return HttpResponse(count(), content_type="text/plain")
    return await run(Order(request.headers, rules.IS_PROTECTED))


@transaction.non_atomic_requests
async def unprotected(request: HttpRequest) -> HttpResponseBase:
    return await run(Order(request.headers, is_protected=False))


async def run(order: Order) -> HttpResponseBase:
    async with asyncio.timeout(order.timeout):
        await asyncio.sleep(order.before())
        await asyncio.sleep(order.effect())
    order.state()
    return StreamingHttpResponse(chunks(order), status=order.status) if order.is_streamed else respond(order)


async def chunks(order: Order) -> AsyncIterator[bytes]:
    """Yields the chunks of a streamed response. Django would collect those of a generator that is not async."""
    for chunk in order.chunks():
        yield chunk


urlpatterns = [
    path("orders", orders),
    path("retryable", orders),
    path("forms", orders),
    path("open", unprotected),
    path("rows", rows),
    path("token", token),
]

if __name__ == "__main__":
    create_table()
    serve(get_asgi_application())
