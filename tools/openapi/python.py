"""Makes a typed Python client from an OpenAPI 3.1 document.

Usage: python3 python.py openapi.json > muster.py

The module that it prints has a TypedDict for each object schema and a Client with a method for each operation that
answers JSON. It needs Python 3.11 and nothing else.
"""

import json
import keyword
import re
import sys

HEAD = '''"""A client of the Muster REST API, made from its OpenAPI document."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Literal, Optional, Required, TypedDict, Union


class ProblemError(Exception):
    """A request that failed: the problem details (RFC 9457) of the answer."""

    def __init__(self, problem: Problem):
        super().__init__(f"{problem['status']} {problem.get('code', '')}: {problem.get('detail', problem['title'])}")
        self.problem = problem


class Client:
    """Sends requests to a platform."""

    def __init__(self, server: str, token: str = ""):
        self.server, self.token = server.rstrip("/"), token

    def _call(self, method: str, path: str, query: dict[str, Any], headers: dict[str, Any], body: Any) -> Any:
        asked = {k: v for k, v in query.items() if v is not None}
        url = self.server + path + ("?" + urllib.parse.urlencode(asked) if asked else "")
        sent = {k: str(v) for k, v in headers.items() if v is not None}
        data = None
        if body is not None:
            sent["Content-Type"], data = "application/json", json.dumps(body).encode()
        if self.token:
            sent["Authorization"] = "Bearer " + self.token
        request = urllib.request.Request(url, data, sent, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                read = answer.read()
        except urllib.error.HTTPError as failed:
            raise ProblemError(json.load(failed)) from None
        return json.loads(read) if read else None
'''


def name(text: str) -> str:
    """Returns an identifier in snake case."""
    out = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)).lower()
    return out + "_" if keyword.iskeyword(out) else out


def hint(schema: dict) -> str:
    """Returns the type of a schema's values."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "enum" in schema:
        return "Literal[" + ", ".join(repr(v) for v in schema["enum"]) + "]"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return "Union[" + ", ".join(hint(s) for s in schema[several]) + "]"
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [k for k in kind if k != "null"]
        return f"Optional[{hint({**schema, 'type': rest[0] if rest else None})}]"
    if kind == "array":
        return f"list[{hint(schema.get('items', {}))}]"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"dict[str, {hint(schema['additionalProperties'])}]"
    known = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "dict[str, Any]"}
    return known.get(kind, "Any")


def typed(title: str, schema: dict) -> str:
    """Returns the definition of a schema's type."""
    if schema.get("type") != "object" or not schema.get("properties"):
        return f"{title} = {hint(schema)!r}\n"
    required = set(schema.get("required", []))
    fields = {
        key: f"Required[{hint(p)}]" if key in required else hint(p) for key, p in schema["properties"].items()
    }
    pairs = ", ".join(f"{key!r}: {value!r}" for key, value in fields.items())
    return f"{title} = TypedDict({title!r}, {{{pairs}}}, total=False)\n"


def method(verb: str, path: str, op: dict) -> str:
    """Returns the method of an operation."""
    places = {"path": [], "query": [], "header": []}
    for p in op.get("parameters", []):
        if p["in"] in places:
            places[p["in"]].append(p)
    arguments = ["self"] + [f"{name(p['name'])}: str" for p in places["path"]]
    body = op.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        arguments.append(f"body: {hint(body)}" + ("" if op["requestBody"].get("required") else " | None = None"))
    options = places["query"] + places["header"]
    if options:
        arguments.append("*")
        arguments += [f"{name(p['name'])}: {hint(p['schema'])} | None = None" for p in options]
    answers = [
        content["schema"]
        for status, answer in op["responses"].items()
        if status.startswith("2")
        for kind, content in answer.get("content", {}).items()
        if kind == "application/json" and "schema" in content
    ]
    url = re.sub(r"{([^}]+)}", lambda m: "{urllib.parse.quote(" + name(m[1]) + ", safe='')}", path)
    values = {
        place: "{" + ", ".join(f"{p['name']!r}: {name(p['name'])}" for p in places[place]) + "}"
        for place in ("query", "header")
    }
    return (
        f"\n    def {name(op['operationId'])}({', '.join(arguments)}) -> {hint(answers[0]) if answers else 'None'}:\n"
        f"        {op.get('summary', '')!r}\n"
        f"        return self._call({verb.upper()!r}, f{url!r}, {values['query']}, {values['header']}, "
        f"{'body' if body is not None else 'None'})\n"
    )


def only_streams(op: dict) -> bool:
    """Tells whether an operation answers with something other than JSON."""
    kinds = {k for status, a in op["responses"].items() if status.startswith("2") for k in a.get("content", {})}
    return bool(kinds) and "application/json" not in kinds


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as f:
        document = json.load(f)
    print(HEAD, end="")
    for path, item in document["paths"].items():
        for verb, op in item.items():
            if isinstance(op, dict) and "operationId" in op and not only_streams(op):
                print(method(verb, path, op), end="")
    print("\n")
    for title, schema in document["components"]["schemas"].items():
        print(typed(title, schema), end="")


main()
