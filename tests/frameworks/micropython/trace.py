# SPDX-License-Identifier: Apache-2.0
"""What the exchange says over some thousands of events, the same for the same seed on every Python: a line for each.

python trace.py [SEED [EVENTS]]
"""

import sys

try:
    from hardcase_edge.exchange.exchange import Exchange
except ImportError:  # on a board
    from hardcase.exchange import Exchange


def events(seed, n):
    """Call an exchange as a device does, by numbers of a linear congruential generator, and print what comes of it."""
    state = seed * 2 + 1

    def draw(limit):
        nonlocal state
        state = (state * 1103515245 + 12345) % 2147483648
        return (state >> 8) % limit

    counters, now, connection, last = {}, 0, 1, b""
    exchange = Exchange(1000, counters)
    for step in range(n):
        now += draw(400)
        what, said = draw(12), None
        if what < 4 and exchange.can_ask(now):
            last = bytes([draw(256) for _ in range(16)])
            exchange.ask(now, last, 500 + draw(3000), (lambda: True) if draw(4) else (lambda: False))
        elif what == 4:
            exchange.replied(now, exchange.waiting or last, "a reply", draw(3) // 2 * (50 + draw(2000)))
        elif what == 5:
            exchange.replied(now, bytes([draw(256)]) * 16, "not ours")
        elif what == 6 and not draw(6):
            connection = connection + 1 if draw(2) else 0
            exchange.connected()
        elif what == 7 and not draw(8):
            exchange.refused(now, "no worker")
        elif what == 8 and not draw(10):
            exchange.cancel()
        said = exchange.poll(now, connection)
        if "is_again" in repr(said) and draw(10):
            exchange.sent()
        print(step, now, what, repr(said), exchange.due(now), exchange.can_ask(now), sorted(counters.items()))


if __name__ == "__main__":
    events(int(sys.argv[1]) if len(sys.argv) > 1 else 0, int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
