"""A job file gives a job, or every mistake in it with field and line."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from coord.cli.jobfile import SIZE_LIMIT_BYTES, JobFileError, read_job
from coord.model.spec import JobSpec, Resources, RestartPolicy, RoleSpec
from tests.conftest import Golden

HERE = Path(__file__).parent
WRONG = sorted((HERE / "jobfiles").glob("*"))

WHOLE = """\
name: digits
checkpoint_dir: /tmp/digits
roles:
  - name: trainer
    command: [python, train.py, --steps, 300, --rate, 1e-3]
    replicas: 4
    spares: 1
    resources: {devices: 1, cpu_millis: 500}
    env: {A: b, SEED: 7}
restart:
  user_limit: 5
"""
JOB = JobSpec(
    "digits",
    (
        RoleSpec(
            "trainer",
            ("python", "train.py", "--steps", "300", "--rate", "1e-3"),
            replicas=4,
            spares=1,
            resources=Resources(1, 500),
            env={"A": "b", "SEED": "7"},
        ),
    ),
    RestartPolicy(user_limit=5),
    "/tmp/digits",
)


def test_a_yaml_file_gives_the_job() -> None:
    """Bare numbers in a command or an environment stay as they are written."""
    assert read_job(WHOLE.encode(), "job.yaml") == JOB


def test_json_is_read_as_well() -> None:
    """Also indented with tabs, with characters written as two escapes."""
    content = json.dumps(msgspec.to_builtins(JOB), indent="\t").replace('"b"', '"\\ud83d\\ude00"')
    job = read_job(content.encode(), "job.json")
    assert job.roles[0].env["A"] == "\N{GRINNING FACE}"


def test_a_role_may_be_merged_into_another() -> None:
    """YAML's `<<` copies what the mapping itself does not say."""
    text = (
        "name: two\nroles:\n  - &base {name: a, command: [x], replicas: 3}\n"
        "  - {<<: *base, name: b}\n"
    )
    roles = read_job(text.encode(), "job.yaml").roles
    assert [(role.name, role.replicas) for role in roles] == [("a", 3), ("b", 3)]


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.name)
def test_a_wrong_file_gets_all_its_mistakes_named(path: Path, golden: Golden) -> None:
    """One golden answer for each file in jobfiles/."""
    with pytest.raises(JobFileError) as caught:
        read_job(path.read_bytes(), path.name)
    golden(HERE / "golden" / "jobfiles" / f"{path.name}.txt", caught.value.format_message() + "\n")


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    """A job is small; a gigabyte given by mistake is refused at once."""
    with pytest.raises(JobFileError, match=str(SIZE_LIMIT_BYTES)):
        read_job(b"#" * (SIZE_LIMIT_BYTES + 1), "job.yaml")


def test_aliases_of_aliases_are_refused() -> None:
    """A few lines must not unfold to more than memory holds."""
    aliases = ", ".join(["*a"] * 1_000)
    text = f"name: x\nroles:\n  - {{name: &a y, command: &b [{aliases}]}}\n"
    text += "".join(f"  - {{name: r{n}, command: *b}}\n" for n in range(200))
    with pytest.raises(JobFileError, match="unfolds to more than"):
        read_job(text.encode(), "job.yaml")
