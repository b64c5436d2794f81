"""Parses a text with the parser of Prometheus's own client, and prints each sample as an object."""

import io
import json
import sys

from prometheus_client.parser import text_fd_to_metric_families

# Only a line feed ends a line.
text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
for family in text_fd_to_metric_families(text):
    for sample in family.samples:
        print(
            json.dumps(
                {
                    "kind": family.type,
                    "name": sample.name,
                    "labels": sample.labels,
                    "value": sample.value,
                }
            )
        )
