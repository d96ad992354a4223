"""What would be sent to Dataflow, written to a gs:// that runs here instead: the job request and
the graph.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from helpers.commands import Run, runner
from helpers.corpora import write_lines

from sentence_beam.transforms import storage

pytestmark = pytest.mark.timeout(300)
IMAGE = "us-docker.pkg.dev/p/r/sentence-beam:cuda"
GPU = "type:nvidia-l4;count:1;machine_type:g2-standard-8;install-nvidia-driver"
WORKERS = (
    "--machine_type=n2-highmem-8",
    "--disk_size_gb=100",
    "--num_workers=4",
    "--max_num_workers=200",
)
FILES = 400  # their names alone have more than a thousand bytes


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""
    return runner(capfd)


def submitted(
    run: Run, gs: str, glob: Path, model: Path, *options: object
) -> tuple[dict[str, Any], bytes]:
    """The job request and the graph of `embed`, as a template on gs://."""
    cloud = (
        "--project=my-project",
        "--region=us-central1",
        f"--temp_location={gs}/temp",
        f"--staging_location={gs}/staging",
    )
    outcome = run(
        "embed", "--input", glob, "--store", f"{gs}/store", "--model", model, "--dtype", "float32", *options,
        "--runner=DataflowRunner", *cloud, f"--template_location={gs}/job", f"--sdk_container_image={IMAGE}",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    assert "commits by itself" in outcome.out
    job = json.loads(storage.read_bytes(f"{gs}/job"))
    graph = storage.read_bytes(job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"])
    storage.storage_of(gs).delete(f"{gs}/store/lease.json")  # nobody will run it
    return job, graph


def hinted(graph: bytes, urn: str) -> dict[str, bytes]:
    """Steps with a resource hint, by their full name."""
    pipeline = beam_runner_api_pb2.Pipeline.FromString(graph)
    components, found = pipeline.components, {}
    for step in components.transforms.values():
        hints = (
            components.environments[step.environment_id].resource_hints
            if step.environment_id
            else {}
        )
        if urn in hints:
            found[step.unique_name] = hints[urn]
    return found


@pytest.mark.parametrize("partition", [pytest.param("file", marks=pytest.mark.slow), "content"])
def test_a_gpu_for_the_steps_that_use_one(
    run: Run, gs: str, model: Path, tmp_path: Path, partition: str, caplog: pytest.LogCaptureFixture
) -> None:
    glob = write_lines(tmp_path / "in" / "a.txt", ["a text"])
    options = (
        "--accelerator",
        GPU,
        "--min-ram",
        "24GB",
        "--index",
        "auto",
        "--partition",
        partition,
        *WORKERS,
    )
    job, graph = submitted(run, gs, glob, model, *options)
    for urn in (
        common_urns.resource_hints.ACCELERATOR.urn,
        common_urns.resource_hints.MIN_RAM_BYTES.urn,
    ):
        steps = hinted(graph, urn)
        assert steps
        assert any(name.startswith("Embed/EmbedUnits") for name in steps), steps
        others = [name for name in steps if not name.startswith(("Embed/EmbedUnits", "Index"))]
        assert others == []
    assert set(hinted(graph, common_urns.resource_hints.ACCELERATOR.urn).values()) == {GPU.encode()}
    assert set(hinted(graph, common_urns.resource_hints.MIN_RAM_BYTES.urn).values()) == {
        b"24000000000"
    }

    (pool,) = job["environment"]["workerPools"]
    assert (pool["machineType"], pool["diskSizeGb"], pool["numWorkers"]) == ("n2-highmem-8", 100, 4)
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 200
    assert "type hint" not in caplog.text
    images = pool["sdkHarnessContainerImages"]
    assert {image["containerImage"] for image in images} == {IMAGE}
    assert len(images) == 3, "environments with both hints, with memory alone, with none"
    assert "no_use_multiple_sdk_containers" in job["environment"]["experiments"]
    assert "use_multiple_sdk_containers" not in job["environment"]["experiments"]
    assert pool["numThreadsPerWorker"] == 2
    names = [package["name"] for package in pool["packages"]]
    assert names == ["submission_environment_dependencies.txt"], (
        "no pickled session, and nothing to install"
    )
    assert job["environment"]["sdkPipelineOptions"]["options"]["save_main_session"] is False


def test_without_a_gpu_workers_are_as_dataflow_has_them_and_no_graph_grows_with_the_input(
    run: Run, gs: str, model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    sizes = []
    for count in (1, FILES):
        for number in range(count):
            (folder / f"{number:05d}.txt").write_text("a text\n")
        job, graph = submitted(run, gs, folder / "*.txt", model, "--index", "auto")
        sizes.append(len(graph) + len(json.dumps(job)))
    assert max(sizes) < 1_000_000
    assert abs(sizes[1] - sizes[0]) < 1000
    assert not hinted(graph, common_urns.resource_hints.ACCELERATOR.urn)
    (pool,) = job["environment"]["workerPools"]
    assert "use_multiple_sdk_containers" in job["environment"]["experiments"]
    assert "numThreadsPerWorker" not in pool
