"""The web server. gunicorn loads it, and so publishes, before it forks its workers."""

from __future__ import annotations

from fastapi import FastAPI

from msgbroker.client import SyncMessageCenter
from tests.chaos.shop.orders import OPENED, PLACED, TOPIC, Order

center = SyncMessageCenter()
center.publish(TOPIC, OPENED, {"by": center.instance_id})
app = FastAPI()


@app.post("/orders")
def place(order: Order) -> dict[str, str]:
    """Place an order; FastAPI calls this in one of many threads."""
    receipt = center.publish(TOPIC, PLACED, order, key=f"order-{order.number}")
    return {"message_id": str(receipt.message_id)}
