"""Makes a submission take effect once, however often it is sent: the Python client of the Onceward service.

    from onceward import Onceward, Replayed

    onceward = Onceward("http://127.0.0.1:8080")
    try:
        with onceward.claim(key="order-4711", action="place order", subject="alice") as claim:
            place_order()
    except Replayed:
        pass  # it was placed before
"""

from .claim import Claim, Replayed, Settled
from .client import Onceward, Redemption, Token
from .decorator import once
from .effect import Effect, NotApplied, Policy, Unknown, state_effect
from .problem import OncewardError, Problem, Rejected
from .reply import Reply

__all__ = [
    "Claim",
    "Effect",
    "NotApplied",
    "Onceward",
    "OncewardError",
    "Policy",
    "Problem",
    "Redemption",
    "Rejected",
    "Replayed",
    "Reply",
    "Settled",
    "Token",
    "Unknown",
    "once",
    "state_effect",
]
