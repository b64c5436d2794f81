"""Decodes OTLP's JSON lines with OpenTelemetry's own messages, and prints each record and span as an object.

A name or a type that the messages do not have is an error. Integers stay integers, bytes become
hexadecimal digits, lists of pairs become objects.
"""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

# OTLP's mapping to JSON has ids in hexadecimal digits, where that of protocol buffers has base64.
IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}
# The collector's limit of a line, unless it is told otherwise.
MOST = 1 << 20


def with_base64(value):
    if isinstance(value, list):
        return [with_base64(element) for element in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for key, of in value.items():
        if key in IDS:
            raw = bytes.fromhex(of)
            assert len(raw) == IDS[key] and any(raw) and of == of.lower(), (key, of)
            made[key] = base64.b64encode(raw).decode()
        else:
            # 64 bits are text, enumerations are numbers.
            if key.endswith("UnixNano") or key == "intValue":
                assert isinstance(of, str), (key, of)
            if key in ("severityNumber", "kind", "code"):
                assert isinstance(of, int), (key, of)
            made[key] = with_base64(of)
    return made


def plain(value):
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    of = getattr(value, kind)
    if kind == "double_value" and (of != of or of in (float("inf"), float("-inf"))):
        return str(of)
    if kind == "array_value":
        return [plain(element) for element in of.values]
    if kind == "kvlist_value":
        return pairs(of.values)
    return of.hex() if kind == "bytes_value" else of


def pairs(attributes):
    made = {}
    for pair in attributes:
        assert pair.key and pair.key not in made, pair.key
        made[pair.key] = plain(pair.value)
    return made


def scopes(resources, name):
    for resource in resources:
        of = pairs(resource.resource.attributes)
        for scope in getattr(resource, name):
            assert scope.scope.name == "lastwords" and scope.scope.version, scope.scope
            yield of, scope


def logs(data):
    for of, scope in scopes(data.resource_logs, "scope_logs"):
        for record in scope.log_records:
            assert record.observed_time_unix_nano == record.time_unix_nano
            yield {
                "kind": "log",
                "resource": of,
                "time": record.time_unix_nano,
                "severity": record.severity_number,
                "severity_text": record.severity_text,
                "name": record.event_name,
                "body": plain(record.body),
                "attributes": pairs(record.attributes),
                "trace": record.trace_id.hex(),
                "span": record.span_id.hex(),
            }


def spans(data):
    for of, scope in scopes(data.resource_spans, "scope_spans"):
        for span in scope.spans:
            yield {
                "kind": "span",
                "resource": of,
                "time": span.start_time_unix_nano,
                "end": span.end_time_unix_nano,
                "name": span.name,
                "attributes": pairs(span.attributes),
                "trace": span.trace_id.hex(),
                "span": span.span_id.hex(),
                "parent": span.parent_span_id.hex(),
                "span_kind": span.kind,
                "status": span.status.code,
            }


for path in sys.argv[1:]:
    print(json.dumps({"file": path}))
    with open(path, "rb") as file:
        for line in file:
            assert len(line) <= MOST and line.endswith(b"\n"), (path, len(line))
            value = json.loads(line)
            (kind,) = value
            data = {"resourceLogs": LogsData, "resourceSpans": TracesData}[kind]()
            json_format.ParseDict(with_base64(value), data)
            # The messages can be sent, too.
            data = type(data).FromString(data.SerializeToString())
            for made in logs(data) if kind == "resourceLogs" else spans(data):
                print(json.dumps(made))
