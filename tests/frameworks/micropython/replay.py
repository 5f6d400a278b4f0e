# SPDX-License-Identifier: Apache-2.0
"""Under MicroPython: the decisions of ``cases.py`` made again, with readings as numbers and as the bytes of a struct.

micropython replay.py FILE

Prints how many decisions were as expected, or ends at the first that was not.
"""

import binascii
import json
import struct
import sys

from hardcase import Policy

KEYS = ("confidence", "route", "sensors", "failed", "unpaid", "trace")


class Cloud:
    """A cloud that gives the case's reply, and sees the case's request."""

    def __init__(self, case):
        self._case = case

    def can_ask(self):
        """As the case says."""
        return self._case["options"]["cloud"]

    def ask(self, request, may_resend):
        """The reply of the case, if it has one."""
        assert binascii.hexlify(request).decode() == self._case["request"], "another request"
        reply = self._case["reply"]
        return reply and (int(reply[0]), reply[1])


def reading(case, sensor, as_bytes):
    """What the sensor says."""
    given = case["readings"][sensor]
    if given is None:
        return None
    values, packed = given
    if as_bytes:
        return binascii.unhexlify(packed)
    return [struct.unpack("<d", binascii.unhexlify(x))[0] if isinstance(x, str) else x for x in values]


def replay(line, ways=(False, True)):
    """The number of decisions of a program that were made as expected."""
    program = json.loads(line)
    policy = Policy(bytearray(binascii.a2b_base64(program["image"])), program["names"])
    for case in program["cases"]:
        options, expected = case["options"], case["expected"]
        budget = None if options["budget"] is None else int(options["budget"])
        for as_bytes in ways:
            said = {sensor["name"]: reading(case, k, as_bytes) for k, sensor in enumerate(program["names"]["sensors"])}
            made = policy.decide(said.get, Cloud(case), budget, options["itemSize"], options["dead"])
            found = {key: getattr(made, key) for key in KEYS}
            found.update(result=str(made.result), cost=str(made.micro))
            assert found == expected, f"{found!r} is not {expected!r}"
    return len(program["cases"]) * len(ways)


if __name__ == "__main__":
    with open(sys.argv[1]) as lines:
        print(sum(replay(line) for line in lines))
