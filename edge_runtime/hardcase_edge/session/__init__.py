# SPDX-License-Identifier: Apache-2.0
"""One decision, from the first sensor to the answer, as an automaton without I/O and without a clock.

A session says what it needs, and its owner supplies it. Here the program buys a thermometer for 2 units, answers if
the temperature is at most 20 degrees (an easy case) and otherwise forwards the reading to the cloud:

>>> from hardcase_edge.program.definition import *
>>> from hardcase_edge.session.session import Machine, Session
>>> program = Program(
...     features=(Feature("f32"),),
...     sensors=(Sensor(features=(0,), cost=(2_000_000,)),),
...     uplink=Uplink(request_bytes=60, features=(0,)),
...     columns=(Column(0, Rank((20.0,))),),
...     scorers=(Trees((0,), (0,), (Tree(0, 1, (0,), (-CODE_MAX,), (True,), (), (-5, 5)),)),),
...     nodes=(
...         Acquire((0,), then=1, otherwise=3),
...         Branch(Slice(0, 0, 1), "threshold", targets=(3, 2)),
...         Forward((0,), fallback=3),
...         Answer(Slice(0, 0, 1), confidences=(8_000,)),
...     ),
...     n_classes=2,
...     costs=Costs(per_request=5_000_000),
... )
>>> session = Session(Machine(program), budget=10_000_000)
>>> session.next_action()
NeedSensors(sensors=(0,))
>>> session.feed({0: [21.5]})
>>> session.next_action()
NeedReply(readings=(21.5,))
>>> session.reply(result=1, confidence=9_700)
>>> session.next_action()
Decision(result=1, confidence=9700, route='cloud', cost=7000000, sensors=(0,), trace=(0, 1, 2), failed=(), unpaid=())

``drive`` plays the owner's part with two functions.
"""
