"""One contender of kazoo: obeys a line, answers with a line."""

import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe import lock as recipes

servers, kind, path, session, identifier = sys.argv[1:6]
client = KazooClient(hosts=servers, timeout=float(session))
client.start()
patterns = ["-lock-"] if kind == "Curator" else []
recipe = getattr(recipes, "Lock" if kind == "Curator" else kind)
lock = recipe(client, path, identifier, extra_lock_patterns=patterns)


def increment(file, times):
    for _ in range(times):
        with lock:
            # The other processes keep the largest token behind the number.
            with open(file) as counter:
                value, *token = counter.read().split()
            time.sleep(0.001)
            with open(file, "w") as counter:
                counter.write(" ".join([str(int(value) + 1), *token]))
    return "done"


def obey(words):
    if words[0] == "try":
        return "yes" if lock.acquire(blocking=False) else "no"
    if words[0] == "take":
        try:
            return "yes" if lock.acquire(timeout=30) else "no"
        except LockTimeout:
            return "no"
    if words[0] == "release":
        return "yes" if lock.release() else "no"
    if words[0] == "contenders":
        return " ".join(lock.contenders())
    if words[0] == "increment":
        return increment(words[1], int(words[2]))
    return "what?"


print("ready", flush=True)
for line in sys.stdin:
    try:
        print(obey(line.split()), flush=True)
    except Exception as error:
        print(repr(error), flush=True)
