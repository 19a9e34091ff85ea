"""Which files of a folder are a dataset: shards, splits, what `save_to_disk` wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from evalfleet.errors import DefinitionError
from evalfleet.planning.dataset import Dataset
from tests.unit.planning.projects import DATA


def shard(path: Path, *values: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = pa.table({"n": list(values)})
    if path.suffix == ".parquet":
        parquet.write_table(content, path)
        return
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content)


def save_to_disk(folder: Path, split: str, *shards: tuple[int, ...], **more: Any) -> None:
    """What `datasets` writes for one split."""
    names = [f"data-{index:05d}-of-{len(shards):05d}.arrow" for index in range(len(shards))]
    for name, values in zip(names, shards, strict=True):
        shard(folder / name, *values)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "1f", "_split": split}
    (folder / "state.json").write_text(json.dumps(state | more), encoding="utf-8")
    (folder / "dataset_info.json").write_text("{}", encoding="utf-8")


def numbers(dataset: Dataset) -> list[int]:
    return [row["n"] for row in dataset]


def refusal(dataset: Dataset) -> str:
    with pytest.raises(DefinitionError) as caught:
        list(dataset)
    return str(caught.value)


def test_a_saved_split_is_read_in_the_order_of_its_shards(tmp_path: Path) -> None:
    save_to_disk(tmp_path, "train", (1, 2), (3,))
    assert numbers(Dataset.huggingface(str(tmp_path))) == [1, 2, 3]
    assert numbers(Dataset.huggingface(str(tmp_path), split="train")) == [1, 2, 3]
    assert "saved from the split 'train', not from 'test' (leave split= out)" in refusal(
        Dataset.huggingface(str(tmp_path), split="test")
    )


def test_of_saved_splits_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}', encoding="utf-8")
    save_to_disk(tmp_path / "train", "train", (1,))
    save_to_disk(tmp_path / "test", "test", (2,))
    assert numbers(Dataset.huggingface(str(tmp_path), split="test")) == [2]
    assert 'several splits: train, test (say which: split="train")' in refusal(Dataset.huggingface(str(tmp_path)))
    assert "no split 'dev': it has train, test" in refusal(Dataset.huggingface(str(tmp_path), split="dev"))


def test_what_the_datasets_package_saved_is_read() -> None:
    """Written by datasets 5.2."""
    saved = str(DATA / "datasets/saved_by_datasets")
    assert list(Dataset.huggingface(saved, split="train", id="id")) == [
        {
            "id": 7,
            "question": "How much?",
            "level": 1,
            "choices": {"text": ["a", "b"]},
            "asked": "2024-01-02T03:04:05.0006",
        },
        {"id": 8, "question": "How many?", "level": 0, "choices": {"text": []}, "asked": "2024-01-02T03:04:05.0006"},
    ]
    assert len(list(Dataset.huggingface(saved, split="test"))) == 1


@pytest.mark.parametrize(
    ("files", "splits"),
    [
        ({"train.parquet": 1, "test.parquet": 2}, {"train": [1], "test": [2]}),
        ({"data/train-00000-of-00002.parquet": 1, "data/train-00001-of-00002.parquet": 2}, {None: [1, 2]}),
        ({"train-00000-of-00001-0a1b2c.parquet": 1, "test-00000-of-00001-0a1b2c.parquet": 2}, {"test": [2]}),
        ({"train/b.parquet": 2, "train/a.parquet": 1, "dev/0.parquet": 3}, {"train": [1, 2], "dev": [3]}),
        ({"x.arrow": 1}, {None: [1], "x": [1]}),
        ({"x.parquet": 1, ".hidden.parquet": 2, "_tmp/y.parquet": 3}, {None: [1]}),
    ],
)  # fmt: skip
def test_files_of_the_hub_say_their_split_by_name(
    tmp_path: Path, files: dict[str, int], splits: dict[str | None, list[int]]
) -> None:
    for name, value in files.items():
        shard(tmp_path / name, value)
    for split, expected in splits.items():
        assert numbers(Dataset.huggingface(str(tmp_path), split=split)) == expected


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({}, "holds no state.json, and no Parquet or Arrow file"),
        ({"state.json": "{"}, "is not what datasets writes"),
        ({"state.json": '{"_data_files": [{"filename": "../x.arrow"}]}'}, "which lies elsewhere"),
        ({"state.json": '{"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}'}, "save it again"),
        ({"dataset_dict.json": '{"splits": []}'}, "several splits"),
        ({"dataset_dict.json": '{"splits": ["a"]}'}, "can't be read: No such file"),
        ({"state.json": '{"_data_files": [{"filename": "gone.arrow"}]}'}, "can't be read: No such file"),
    ],
)
def test_a_folder_that_is_no_dataset_says_why(tmp_path: Path, files: dict[str, str], text: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert text in refusal(Dataset.huggingface(str(tmp_path)))


def test_a_name_of_the_hub_is_told_to_be_downloaded(tmp_path: Path) -> None:
    assert "datasets are read from disk (download it first" in refusal(
        Dataset.huggingface(str(tmp_path / "openai/gsm8k"))
    )


def test_a_folder_of_parquet_files_is_read_by_name(tmp_path: Path) -> None:
    shard(tmp_path / "b.parquet", 2)
    shard(tmp_path / "a.parquet", 1)
    (tmp_path / "_SUCCESS").touch()
    assert numbers(Dataset.parquet(str(tmp_path))) == [1, 2]
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    assert "holds no *.parquet file" in refusal(Dataset.parquet(str(tmp_path)))


def test_rows_are_numbered_over_all_shards(tmp_path: Path) -> None:
    for name, values in (("a", [1.0, 2.0]), ("b", [3.0, float("nan")])):
        parquet.write_table(pa.table({"n": values}), tmp_path / f"{name}.parquet")
    assert refusal(Dataset.parquet(str(tmp_path))).startswith(f"{tmp_path}:4: n: row 4: must be a finite number")


def test_the_digest_is_of_every_file_and_of_their_names(tmp_path: Path) -> None:
    save_to_disk(tmp_path, "train", (1, 2), (3,))
    dataset = Dataset.huggingface(str(tmp_path))
    digests = [dataset.sha256()]
    (tmp_path / "README.md").write_text("no part of it", encoding="utf-8")
    assert dataset.sha256() == digests[0]
    save_to_disk(tmp_path, "train", (1, 2), (4,))
    digests.append(dataset.sha256())
    save_to_disk(tmp_path, "train", (1, 2), (4,), (5,))
    digests.append(dataset.sha256())
    assert len(set(digests)) == 3
