"""What a receipt discloses, and what it does not."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xxhash
from sample_receipts import FACTS, made, section

import samerun
from samerun.base.errors import SamerunError
from samerun.record.receipt import receipt_file, recorded_command, redact
from samerun.record.receipt.environment_diff import find_environment_differences, list_environment_differences_here

SAMERUN = str(Path(sys.executable).with_name("samerun"))


@pytest.mark.parametrize(
    "name",
    ["DB_PASSWORD", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "TORCH_API_KEY", "--api-key", "--token", "NCCL_AUTH",
     "WANDB_APIKEY", "password", "CUDA_CREDENTIALS", "accessToken", "--hub_token", "--secretKey", "GITHUB_PAT",
     "TORCH_TOKENS", "NCCL_APIKEYS", "CUDA_SECRETKEY", "SLACK_WEBHOOK_URL", "TORCH_TOKEN2", "X-Amz-Signature"],
)  # fmt: skip
def test_names_that_look_secret(name: str) -> None:
    assert redact.is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "--max-tokens", "TOKENIZERS_PARALLELISM", "--epochs", "--keyboard", "--n_token", "CUDA_PATH",
     "PYTORCH_CUDA_ALLOC_CONF", "--monkey", "--max_token", "PYTHONHASHSEED", "--key-dim", "--author", "token_embedding",
     "--keypoints", "--passes", "--sort-key"],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not redact.is_secret_name(name)


def test_words_of_commands() -> None:
    words = [
        "t.py",
        "--token",
        "X",
        "--api-key=X",
        "--lr",
        "0.1",
        "HF_TOKEN=X",
        "s3://me:X@host/a",
        "--token",
        "--epochs",
        "3",
    ]
    told = redact.redact_command_arguments(words)
    assert "X" not in " ".join(told)
    assert told[3] == "--api-key=<redacted>" and told[4:6] == ["--lr", "0.1"] and told[-2:] == ["--epochs", "3"]
    assert redact.redact_command_arguments(["--user", "me"], ["user"]) == ["--user", "<redacted>"]


@pytest.mark.parametrize(
    "words",
    [["--password", "--S3CRET"], ["--token", "--", "S3CRET"], ["https://S3CRET@github.com/a"],
     ["postgres://u:a@S3CRET@h/db"], ["postgres://u:a/S3CRET@h/db"], ["https://h/x?a=1&sig=S3CRET&b=2"],
     ["Server=h;User Id=u;Password=S3CRET;"], ["--conn=Server=h;Pwd=S3CRET"], ["host=h password=S3CRET dbname=d"],
     ['{"wandb": {"api_key": "S3CRET"}}'], ["-H", "Authorization: Bearer S3CRET"], ["--env=DB_PASSWORD=S3CRET"],
     ["sh", "-c", "HF_TOKEN=S3CRET python train.py --api-key S3CRET"], ["-c", "os.environ['HF_TOKEN']='S3CRET'"],
     ["hf_S3CRETabcdefghijklmnopqrstuvwx"], ["--out=ghp_S3CRETabcdefghijklmnopqrst"], ["AKIAS3CRET1234567890"],
     ["https://hooks.slack.com/services/T/B/S3CRET"], ["-----BEGIN PRIVATE KEY-----\nS3CRET\n"], ["--keys=S3CRET"]],
)  # fmt: skip
def test_secrets_inside_of_words(words: list[str]) -> None:
    told = redact.redact_command_arguments(words)
    assert "S3CRET" not in " ".join(told) and redact.REDACTED in " ".join(told)
    assert redact.redact_environment({"TORCH_OWN": words[-1]})["TORCH_OWN"] == told[-1] or len(words) > 1


def test_words_without_secrets_stay_as_they_are() -> None:
    words = ["https://host:8080/x@v1", "git+https://github.com/x@v1", "ssh://git@github.com/x", "--opt=lr=0.1,wd=0.2",
             "a=1/train.csv", "12:30:05", "tokenizer=gpt2", "sh -c 'python t.py --lr 0.1'"]  # fmt: skip
    assert redact.redact_command_arguments(words) == words
    begin = time.process_time()
    for text in ("a=", "://a:x", "key:", "eyJ", "--a ", '"a" ', "A"):
        redact.redact_and_truncate_text(text * 20_000)
    assert time.process_time() - begin < 2, "no search is quadratic"
    long = redact.redact_and_truncate_text("x" * 100_000)
    assert len(long) < 1 << 16 and long.endswith(redact.REDACTED), "a receipt can be read, and a cut word is never run"


@pytest.mark.slow
def test_a_run_discloses_no_secret(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, torch\nos.environ['DB_PASSWORD'], os.environ.get('HOME')\ntorch.manual_seed(0)\n"
        "model = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "model(torch.rand(8, 4)).sum().backward()\noptimizer.step()\n"
    )
    environment = {**os.environ, "DB_PASSWORD": "letmein", "NCCL_TOKEN": "hunter2", "TORCH_OWN": "mine"}
    for name in ("a.json", "b.json"):
        words = [SAMERUN, "run", "--quiet", "--receipt", name, "--redact", "host", "--redact", "torch_own", "train.py",
                 "--api-key", "s3cret"]  # fmt: skip
        subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=120)
    text = (tmp_path / "a.json").read_text()
    receipt = json.loads(text)
    for secret in ("letmein", "hunter2", "s3cret", '"mine"'):
        assert secret not in text
        for digest in (xxhash.xxh3_128(repr(secret).encode()), xxhash.xxh3_128(secret.encode())):
            assert digest.hexdigest() not in text, "a word list would find it"
    assert receipt["variables"]["NCCL_TOKEN"] == receipt["variables"]["TORCH_OWN"] == "<redacted>"
    assert receipt["circumstances"]["host"] == "<redacted>"
    assert "DB_PASSWORD" in receipt["processes"]["main"]["environment"]
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o600
    done = subprocess.run([SAMERUN, "diff", "--json", "-", "a.json", "b.json"], cwd=tmp_path, capture_output=True)
    assert json.loads(done.stdout)["surroundings"] == []
    done = subprocess.run([SAMERUN, "verify", "--yes", "a.json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "secrets were left out" in done.stderr


def test_a_block_discloses_no_secret(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import samerun\nwith samerun.receipt('a.json', redact=['host', 'torch_own', '--user']):\n    pass\n"
    )
    environment = {**os.environ, "NCCL_TOKEN": "hunter2", "TORCH_OWN": "mine"}
    words = [sys.executable, "train.py", "--api-key", "s3cret", "--user", "somebody"]
    subprocess.run(words, cwd=tmp_path, env=environment, check=True, timeout=120)
    text = (tmp_path / "a.json").read_text()
    assert not [word for word in ("hunter2", "s3cret", '"mine"', "somebody") if word in text]
    assert json.loads(text)["circumstances"]["host"] == "<redacted>"
    with pytest.raises(SamerunError, match="list"), samerun.receipt(tmp_path / "b.json", redact="host"):
        pass


def test_digests_under_other_keys_say_only_which_variables_were_read() -> None:
    a = made(section(environment={"A": "0" * 32, "B": "1" * 32})).receipt
    b = made(section(environment={"A": "2" * 32, "B": "1" * 32})).receipt
    assert [one.path for one in find_environment_differences(a, b)] == ["processes/main/environment"]
    old = {key: value for key, value in b.items() if key != "environment_key"}
    assert find_environment_differences(a, old) == []
    other = made(section(environment={"A": "2" * 32})).receipt
    assert find_environment_differences(a, {**other, "environment_key": "0" * 16})[0].b == {"B": "not there"}


def test_what_was_left_out_is_no_difference_here() -> None:
    facts = {"variables": {**FACTS["variables"], "NCCL_TOKEN": "x", "TORCH_OWN": "y"}}
    receipt = made(facts=facts).receipt
    receipt["variables"]["TORCH_OWN"] = redact.REDACTED
    here = {**{key: receipt[key] for key in ("machine", "packages")}, "variables": facts["variables"]}
    assert not [one for one in list_environment_differences_here(receipt, here) if one["path"].startswith("variables")]
    with pytest.raises(SamerunError, match="left out"):
        recorded_command.resolve_recorded_command({"form": "script", "words": ["t.py", "--token", redact.REDACTED]})


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    (tmp_path / "key.pem").write_bytes(b"x")
    (tmp_path / "key.pem").chmod(0o640)
    with pytest.raises(SamerunError, match="0640"):
        receipt_file.load_ed25519_private_key(tmp_path / "key.pem")


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_key_that_was_cut_off_is_made_anew_and_kept(tmp_path: Path) -> None:
    (tmp_path / "samerun").mkdir()
    (tmp_path / "samerun" / "environment.key").write_bytes(b"cut off")
    code = "from samerun.record.receipt.redact import *; print(load_or_create_redaction_key_fingerprint())"
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    words = [sys.executable, "-c", code]
    told = {subprocess.run(words, env=environment, capture_output=True, check=True).stdout for _ in range(2)}
    assert len(told) == 1
    assert [stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "samerun").iterdir()] == [0o600]


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_traces_are_private_whatever_the_umask(tmp_path: Path) -> None:
    from samerun.record.trace.writer import TraceWriter

    earlier = os.umask(0)
    try:
        TraceWriter(str(tmp_path / "main.trace"), "main").close()
        receipt_file.write(tmp_path / "run.json", made(), tmp_path)
    finally:
        os.umask(earlier)
    kept = [each for each in tmp_path.rglob("*") if each.name != "kept"]
    assert {each.name for each in kept} >= {"main.trace", "run.json"}
    assert all(stat.S_IMODE(each.stat().st_mode) & 0o077 == 0 for each in kept)
