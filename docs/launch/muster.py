"""Checkpoints of a node's volumes, for programs that run on Muster. Needs nothing but Python's own library.

    import muster

    torch.save(state, "/data/ckpt/step_8200.tmp")
    os.replace("/data/ckpt/step_8200.tmp", "/data/ckpt/step_8200")
    muster.checkpoint("/data/ckpt", label="step_8200", wait=False)   # returns once the files may change again

    start_from = muster.resume_label()                               # after a restart elsewhere: "step_8200"

On a volume with mode ranks, each rank calls this after it has written its part; what all have written is committed together:

    muster.checkpoint("/data/ckpt", label="step_8200", all_ranks=True)

A checkpoint is durable once it is committed: muster.checkpoint(dir) waits for that, muster.wait_for(c) does so later. If the
call fails, the error's code says why: fenced (the volume is written elsewhere, stop), quota, store, timeout.
"""
import http.client
import json
import os
import socket
import time

SOCKET = os.environ.get("MUSTER_SOCKET", "/run/muster/node/self.sock")


class CheckpointError(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


class _Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)


def _request(method, path, body=None, until=None):
    """Sends a request, again while the host's agent is restarted."""
    while True:
        try:
            c = _Connection("node", timeout=90)
            c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            r = c.getresponse()
            answer = json.loads(r.read() or b"{}")
            if r.status == 200:
                return answer
            if r.status != 503:
                raise CheckpointError(answer.get("code", "http"), answer.get("message", f"status {r.status}"))
        except (OSError, http.client.HTTPException, ValueError) as e:
            if until is not None and time.monotonic() > until:
                raise CheckpointError("timeout", f"the host's agent does not answer: {e}") from e
        if until is not None and time.monotonic() > until:
            raise CheckpointError("timeout", "the host's agent does not answer")
        time.sleep(0.5)


def checkpoint(directory, label="", wait=True, timeout=600, keep=False, all_ranks=False):
    """Makes the files below directory durable. Returns {"snapshot": …, "stage": "durable" or "sending", …}."""
    until = time.monotonic() + timeout
    c = _request("POST", "/v1/self/checkpoints",
                 {"dir": os.path.realpath(directory), "label": label, "keep": keep, "all_ranks": all_ranks}, until)
    return wait_for(c, "durable" if wait else "sending", until - time.monotonic())


def wait_for(c, stage="durable", timeout=600):
    """Waits for a checkpoint that was begun: until it is durable, or only until the files may change ("sending")."""
    until = time.monotonic() + timeout
    while c["stage"] not in ("durable", "failed", stage):
        if time.monotonic() > until:
            missing = c.get("missing_ranks")
            raise CheckpointError("timeout", "the checkpoint is not durable yet; it "
                                  + (f"waits for ranks {missing}" if missing else "goes on"))
        left = max(1, min(30, int(until - time.monotonic())))
        c = _request("GET", f"/v1/self/checkpoints/{c['request']}?wait_s={left}&until={stage}", None, until)
    if c["stage"] == "failed":
        raise CheckpointError(c.get("code", "store"), c.get("message", ""))
    return c


def durable():
    """Returns the last commit of each volume of the node."""
    return _request("GET", "/v1/self/durable", None, time.monotonic() + 30)["volumes"]


def resume_label():
    """Returns the label of the snapshot that the node's volumes were restored from, or None."""
    return os.environ.get("MUSTER_RESUME_LABEL")
