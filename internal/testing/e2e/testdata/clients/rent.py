"""Rents a cluster with the client that python.py makes from the platform's document, and prints what happened."""

import json
import sys
import time

import muster

server, token, image = sys.argv[1:]
client = muster.Client(server, token)

offers = client.search_offers(q="gpus_total>=1", limit=10)
if len(offers["items"]) < 2:
    sys.exit(f"{len(offers['items'])} offers")
spec: muster.NewQuote = {"image": image, "name": "python", "nodes": 2, "gpus_per_node": 1, "command": ["sleep", "3600"],
                         "disk_gb": 1}
quote = client.create_quote(spec)
cluster = client.rent_cluster({"quote_id": quote["id"]}, idempotency_key="python-1")
while cluster["state"] != "running":
    if cluster["state"] in ("failed", "released"):
        sys.exit(f"{cluster['state']}: {cluster['detail']}")
    time.sleep(0.1)
    cluster = client.get_cluster(cluster["id"])
usage = client.get_cluster_usage(cluster["id"])
client.release_cluster(cluster["id"])
code = ""
try:
    client.create_quote({"image": image, "nodes": 128, "gpus_per_node": 8})
except muster.ProblemError as refused:
    code = refused.problem["code"]
print(json.dumps({"id": cluster["id"], "price": quote["price_per_second"], "seconds": usage["billable_seconds"], "code": code}))
