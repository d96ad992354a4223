"""Tables of Iceberg and Delta Lake for tests; those with deleted rows as Spark writes them, which
no library here does.
"""

import base64
import importlib
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SNAPSHOT = 4711  # of the table with deletes
PATHS = 2147483546  # the number of the column with paths in positional deletes
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def rows(*ids: str) -> pa.Table:
    """Rows with these ids, and a number each."""
    return pa.table(
        {
            "id": ids,
            "text": [f"the {i} dog" for i in ids],
            "size": pa.array(range(len(ids)), pa.int64()),
        }
    )


def iceberg_catalog(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog `lake` of Iceberg tables with a namespace `shop`, as pyiceberg's own configuration
    names it.
    """
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
    pytest.importorskip(
        "sqlalchemy",
        reason="sqlalchemy, which pyiceberg's catalog of tests needs, is not installed",
    )
    from pyiceberg.catalog import load_catalog

    settings = {
        "TYPE": "sql",
        "URI": f"sqlite:///{folder}/catalog.db",
        "WAREHOUSE": f"file://{folder}/warehouse",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
    monkeypatch.setattr(
        "pyiceberg.catalog._ENV_CONFIG", importlib.import_module("pyiceberg.utils.config").Config()
    )
    made = load_catalog("lake")
    made.create_namespace("shop")
    return made


def bitmap(position: int) -> bytes:
    """A roaring bitmap of 64 bits with one position: the number of parts, then a key and a bitmap
    of 32 bits each.
    """
    from pyroaring import BitMap

    return struct.pack("<QI", 1, 0) + BitMap([position]).serialize()


def positional_deletes(folder: Path, data_file: str) -> dict[str, Any]:
    """A delete file that deletes the first row of a data file."""
    path = folder / "positional.parquet"
    pq.write_table(pa.table({"file_path": [data_file], "pos": pa.array([0], pa.int64())}), path)
    return {"content": 1, "path": path, "format": "PARQUET", "bounds": {PATHS: data_file.encode()}}


def equality_deletes(folder: Path, data_file: str) -> dict[str, Any]:
    """A delete file that deletes the rows with the id `a`."""
    path = folder / "equality.parquet"
    pq.write_table(pa.table({"id": ["a"]}), path)
    return {"content": 2, "path": path, "format": "PARQUET", "equality_ids": [1]}


def deletion_vector(folder: Path, data_file: str) -> dict[str, Any]:
    """A deletion vector, in a Puffin file, that deletes the first row of a data file."""
    vector = b"\xd1\xd3\x39\x64" + bitmap(0)
    blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    about = {
        "type": "deletion-vector-v1",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": 4,
    }
    about |= {
        "length": len(blob),
        "properties": {"referenced-data-file": data_file, "cardinality": "1"},
    }
    footer = json.dumps({"blobs": [about], "properties": {}}).encode()
    path = folder / "vector.puffin"
    path.write_bytes(
        b"PFA1" + blob + b"PFA1" + footer + struct.pack("<II", len(footer), 0) + b"PFA1"
    )
    return {"content": 1, "path": path, "format": "PUFFIN", "bounds": {PATHS: data_file.encode()}}


def iceberg_with_deletes(table: Any, made: dict[str, Any], format_version: int) -> str:
    """The metadata file of an Iceberg table's next snapshot, in which a delete file deletes
    rows.
    """
    manifests = importlib.import_module("pyiceberg.manifest")
    record = importlib.import_module("pyiceberg.typedef").Record
    before, folder = (
        table.current_snapshot(),
        Path(table.metadata_location.removeprefix("file://")).parent,
    )

    class Deletes(manifests.ManifestWriterV2):  # type: ignore[name-defined, misc]
        """A manifest of delete files."""

        def content(self) -> Any:
            return manifests.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    file = manifests.DataFile.from_args(
        content=manifests.DataFileContent(made["content"]), file_path=f"file://{made['path']}",
        file_format=manifests.FileFormat(made["format"]), partition=record(), record_count=1,
        file_size_in_bytes=made["path"].stat().st_size, lower_bounds=made.get("bounds"),
        upper_bounds=made.get("bounds"), equality_ids=made.get("equality_ids"),
    )  # fmt: skip
    to = table.io.new_output(f"file://{folder}/deletes.avro")
    with Deletes(table.spec(), table.schema(), to, SNAPSHOT, "null") as deletes:
        deletes.add(manifests.ManifestEntry.from_args(data_file=file))
    number, to = (
        before.sequence_number + 1,
        table.io.new_output(f"file://{folder}/snap-deletes.avro"),
    )
    with manifests.write_manifest_list(
        2, to, SNAPSHOT, before.snapshot_id, number, "null"
    ) as listed:
        listed.add_manifests([*before.manifests(table.io), deletes.to_manifest_file()])
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    metadata["snapshots"].append(
        {
            "snapshot-id": SNAPSHOT, "parent-snapshot-id": before.snapshot_id, "sequence-number": number,
            "timestamp-ms": before.timestamp_ms + 1, "manifest-list": f"file://{folder}/snap-deletes.avro",
            "summary": {"operation": "delete"}, "schema-id": before.schema_id,
        }
    )  # fmt: skip
    metadata |= {
        "format-version": format_version,
        "current-snapshot-id": SNAPSHOT,
        "last-sequence-number": number,
    }
    metadata |= {"next-row-id": 100} if format_version == 3 else {}
    metadata["refs"]["main"]["snapshot-id"] = SNAPSHOT
    path = folder / "deletes.metadata.json"
    path.write_text(json.dumps(metadata))
    return f"iceberg:{path}"


def delta_with_vector(folder: Path) -> None:
    """Let the next version of a Delta table delete the first row of its first file by a deletion
    vector.
    """
    from deltalake import DeltaTable

    table = DeltaTable(folder)
    name = pa.table(table.get_add_actions()).column("path").to_pylist()[0]
    vector = struct.pack("<I", 1681511377) + bitmap(0)
    vector += b"\0" * (-len(vector) % 4)
    inline = base64.b85encode(vector).decode().translate(str.maketrans(B85, Z85))
    file = {
        "path": name,
        "partitionValues": {},
        "size": (folder / name).stat().st_size,
        "modificationTime": 0,
    }
    about = {
        "storageType": "i",
        "pathOrInlineDv": inline,
        "sizeInBytes": len(vector),
        "cardinality": 1,
    }
    actions = [
        {"remove": {"path": name, "deletionTimestamp": 0, "dataChange": True}},
        {"add": {**file, "dataChange": True, "deletionVector": about, "stats": '{"numRecords":2}'}},
    ]
    log = folder / "_delta_log" / f"{table.version() + 1:020d}.json"
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


def delta_as_spark_names_it(folder: Path) -> None:
    """Give the folders of a Delta table's partitions the names that Spark gives them, which have
    blanks and letters of any language; in the table's log they are encoded as in a URL."""
    for log in (folder / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for add in (action["add"] for action in actions if "add" in action):
            name, _, file = unquote(add["path"]).partition("/")
            spark = re.sub(r"%(20|2B|3F|C3%BC)", lambda found: unquote(found[0]), name)
            if (folder / name).exists():
                (folder / name).rename(folder / spark)
            add["path"] = quote(f"{spark}/{file}")
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
