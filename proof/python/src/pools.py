"""Crashes of a made fleet, ingested by the workers of Dask and of Ray on this machine.

The code is that of the book's page: the names of its cluster and its folders are replaced, and
nothing else. The data set must have the rows that one run of `lastwords ingest` writes, and what Dask
and Ray find in it must be what DuckDB finds in the data set of that run.

    python pools.py PROGRAM INPUTS PAGE PLACE
"""

import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import duckdb
from same import check_same, ingest

# Each worker has one CPU.
WORKERS = 2
# Ray's workers keep what they exchange in shared memory of this size.
STORE = 100 << 20


def blocks(page):
    """The Python code of a page, by the name of the scheduler that its heading has."""
    found = {}
    for part in Path(page).read_text().split("\n## ")[1:]:
        code = re.findall(r"^```python\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
        found[part.split("\n", 1)[0].strip()] = "\n".join(code)
    return found


def run(code, replaced):
    """Runs the code of the page with other names, each of which must be there. Returns what it
    defines."""
    for old, new in replaced.items():
        assert old in code, f"the page has no {old}"
        code = code.replace(old, new)
    defined = {"__name__": "page"}
    exec(compile(code, "page", "exec"), defined)
    return defined


def dask(code, replaced):
    from dask.distributed import LocalCluster

    with LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster:
        defined = run(code, {**replaced, "tcp://head:8786": cluster.scheduler_address})
        defined["client"].close()
    return dict(defined["counts"].items()), dict(defined["signatures"])


def ray(code, replaced):
    import ray

    # The names of its sockets must be short.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        settings = f"num_cpus={WORKERS}, object_store_memory={STORE}, _temp_dir={folder!r}"
        here = f"ray.init({settings}, include_dashboard=False)"
        try:
            defined = run(code, {**replaced, "ray.init()": here})
        finally:
            ray.shutdown()
    return dict(defined["counts"]), dict(defined["signatures"])


def truth(data_set):
    """The number of events of each name, and the signature of each crash."""
    counts = duckdb.execute(
        f"SELECT name, count(*) FROM read_parquet('{data_set}/v1/events/*/*.parquet') GROUP BY ALL"
    )
    counts = dict(counts.fetchall())
    signatures = duckdb.execute(
        f"SELECT crash_id, signature FROM read_parquet('{data_set}/v1/crashes/*/*.parquet')"
    )
    return counts, dict(signatures.fetchall())


def main(program, inputs, page, place):
    place = Path(place)
    count = len(list(Path(inputs).iterdir()))
    alone = place / "alone"
    ingest(program, alone, inputs)
    counts, signatures = truth(alone)
    assert len(counts) > 1 and any(signatures.values()), "the truth has no events or no signatures"
    code = blocks(page)
    for name, pool in {"Dask": dask, "Ray": ray}.items():
        data_set = place / f"set-{name}"
        replaced = {
            "/var/crash": str(inputs),
            "/shared/crashes": str(data_set),
            '"lastwords"': repr(str(program)),
        }
        begin = time.monotonic()
        found, opened = pool(code[name], replaced)
        seconds = time.monotonic() - begin
        check_same(data_set, alone)
        assert found == counts, f"{name}: {found}, DuckDB: {counts}"
        assert opened == signatures, f"{name}: {opened}, in the data set: {signatures}"
        print(
            f"{name}: {count} inputs by {WORKERS} workers in {seconds:.1f} s; the data set is that "
            f"of one run, and {sum(counts.values())} events have the names that DuckDB finds",
            flush=True,
        )
        shutil.rmtree(data_set)


if __name__ == "__main__":
    main(*sys.argv[1:])
